//! The examples of `docs/parts.md`: by the real GNU parallel and Snakemake where they are installed, otherwise and for Slurm by
//! small programs that do what the examples use.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{SCENARIO, Scratch, ended};

const PAGE: &str = include_str!("../../../../docs/parts.md");

/// The blocks of a section of the page, without their fences.
fn blocks(section: &str) -> Vec<&'static str> {
    let (_, text) = PAGE.split_once(&format!("\n{section}\n")).unwrap_or_else(|| panic!("no {section}"));
    let text = text.split("\n##").next().unwrap_or_default();
    let fenced = text.split("```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').map_or(block, |(_, content)| content)).collect()
}

/// `sbatch`, as far as the page uses it: an array of jobs one after the other, or a command when they have succeeded.
const SBATCH: &str = r#"#!/bin/bash
set -e
while [ $# -gt 1 ]; do
    case "$1" in
        --parsable) ;;
        --dependency=afterok:17) ;;
        --wrap) exec bash -c "$2" ;;
        *) echo "sbatch: $1 is not expected" >&2; exit 1 ;;
    esac
    shift
done
range=$(sed -n 's/^#SBATCH --array=//p' "$1")
first=${range%-*} last=${range#*-}
for i in $(seq "$first" "$last"); do
    SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_COUNT=$((last - first + 1)) bash "$1" >&2
done
echo 17
"#;

/// `parallel --jobs N COMMAND ::: WORDS`.
const PARALLEL: &str = r#"#!/bin/bash
set -e
[ "$1" = --jobs ] && [ "$4" = ::: ]
command=$3
shift 4
for word; do bash -c "${command//\{\}/$word}"; done
"#;

/// `snakemake --cores N` of a file whose last rule makes the inputs of the first one.
const SNAKEMAKE: &str = r#"#!/bin/bash
set -e
value() { sed -n "/^rule $1:/,/^\$/s/^    $2: //p" Snakefile | sed 's/^"\(.*\)"$/\1/'; }
count=$(sed -n 's/^N = //p' Snakefile)
[ "$(value merge input)" = 'expand("shards/{i}.records", i=range(1, N + 1))' ]
output=$(value merge output | sed 's/directory("\(.*\)")/\1/')
for i in $(seq "$count"); do
    file=$(value shard output | sed "s/{i}/$i/")
    inputs+=("$file")
    bash -c "$(value shard shell | sed "s|{wildcards.i}|$i|; s|{N}|$count|; s|{input}|$(value shard input)|; s|{output}|$file|")"
done
bash -c "$(value merge shell | sed "s|{input}|${inputs[*]}|; s|{output}|$output|")"
"#;

/// A folder with `mine.toml`, and the paths of programs: that of bandmaster, and a substitute where a tool is not installed.
fn cluster(tool: &str, substitute: &str) -> (Scratch, String) {
    let scratch = Scratch::new(tool);
    scratch.write("mine.toml", SCENARIO);
    let path = std::env::var("PATH").unwrap_or_default();
    let own = Path::new(env!("CARGO_BIN_EXE_bandmaster")).parent().expect("a folder").display().to_string();
    let is_installed = std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    // There is no cluster here, even where its commands are.
    if is_installed && tool != "sbatch" {
        return (scratch, format!("{own}:{path}"));
    }
    let file = format!("bin/{tool}");
    scratch.write(&format!("{tool}.text"), substitute);
    // Copied by a process of its own: what this one writes may be open in a child of another thread, and then does not start.
    let mut copy = Command::new("install");
    copy.args(["-D", "-m", "755"]).args([scratch.path(&format!("{tool}.text")), scratch.path(&file)]);
    ended(copy).expect(0);
    let bin = scratch.path("bin").display().to_string();
    (scratch, format!("{bin}:{own}:{path}"))
}

fn shell(scratch: &Scratch, path: &str, script: &str) {
    let mut bash = Command::new("bash");
    bash.current_dir(scratch.path("")).env("PATH", path).args(["-ec", script]);
    ended(bash).expect(0);
}

#[track_caller]
fn assert_is_one_run(scratch: &Scratch, out: &str) {
    scratch.run(&["run", "mine.toml", "-o", "whole"]).expect(0);
    let mut merged = scratch.files(out);
    merged.remove(&PathBuf::from(".snakemake_timestamp"));
    assert!(merged == scratch.files("whole"), "{out} is not the report of one run");
}

#[test]
fn the_example_for_slurm_gives_one_run() {
    let (scratch, path) = cluster("sbatch", SBATCH);
    let [array, submit] = blocks("### Slurm")[..] else { panic!("other blocks") };
    scratch.write("array.sh", array);
    shell(&scratch, &path, submit);
    assert_is_one_run(&scratch, "results/slurm");
}

#[test]
fn the_example_for_snakemake_gives_one_run() {
    let (scratch, path) = cluster("snakemake", SNAKEMAKE);
    let [file, call] = blocks("### Snakemake")[..] else { panic!("other blocks") };
    scratch.write("Snakefile", file);
    shell(&scratch, &path, call);
    assert_is_one_run(&scratch, "results/snakemake");
}

#[test]
fn the_example_for_gnu_parallel_gives_one_run() {
    let (scratch, path) = cluster("parallel", PARALLEL);
    let [call] = blocks("### GNU parallel")[..] else { panic!("other blocks") };
    shell(&scratch, &path, call);
    assert_is_one_run(&scratch, "results/parallel");
}

#[test]
fn the_page_without_a_cluster_gives_one_run() {
    let (scratch, path) = cluster("none", "");
    let [call] = blocks("## Shards and merge")[..] else { panic!("other blocks") };
    shell(&scratch, &path, call);
    assert_is_one_run(&scratch, "results/merged");
}

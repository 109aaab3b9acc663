//! The worked examples of figures, each run and drawn.

use std::fs;
use std::path::{Path, PathBuf};

use crate::program::Scratch;

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/figures");
    let files = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    files
}

/// Each figure is drawn for a page and for a column of a paper, where no text is smaller than 8 pt.
#[test]
fn every_example_has_its_figures() {
    let files = examples();
    assert!(files.len() >= 5, "{files:?}");
    let scratch = Scratch::new("figures");
    for path in files {
        let (file, name) =
            (path.to_str().expect("UTF-8"), path.file_stem().expect("a name").to_string_lossy());
        scratch.run(&["run", file, "--quick", "--out", &name]).expect(0);
        let text = fs::read_to_string(&path).expect("a text");
        let written = scratch.files(&name);
        for figure in text.split("[[figures]]").skip(1) {
            let id = figure.split('"').nth(1).expect("an id");
            let drawing = |file: String| {
                let found = written.get(Path::new(&file)).unwrap_or_else(|| panic!("{name} lacks {file}"));
                String::from_utf8(found.clone()).expect("UTF-8")
            };
            let page = drawing(format!("figures/{id}.svg"));
            assert!(page.contains("width=\"800\"") && !page.contains("NaN"), "{name}: {id}");
            let column = drawing(format!("figures/{id}.column.svg"));
            assert!(column.contains("width=\"321.26\""), "{name}: {id}");
            for size in column.split("font-size=\"").skip(1) {
                let size: f64 = size.split('"').next().and_then(|size| size.parse().ok()).expect("a size");
                assert!(size >= 8.0 / 0.75 - 0.01, "{name}: {id} has text of {size}");
            }
        }
    }
}

#[test]
fn a_grid_gives_the_same_bytes_for_any_number_of_jobs() {
    let scratch = Scratch::new("grid");
    let grid = examples().into_iter().find(|path| path.ends_with("grid.toml")).expect("an example");
    let file = grid.to_str().expect("UTF-8");
    for (out, jobs) in [("one", "1"), ("two", "2")] {
        scratch.run(&["run", file, "--quick", "--jobs", jobs, "--out", out]).expect(0);
    }
    let without_command = |out: &str| {
        let mut files = scratch.files(out);
        // It names the folder and the jobs.
        files.remove(Path::new("manifest.json"));
        files.remove(Path::new("report.html"));
        files
    };
    assert!(without_command("one") == without_command("two"));
}

/// Of flows that were cut short a figure of completion times says so.
#[test]
fn survivors_are_not_compared_silently() {
    let scratch = Scratch::new("survivors");
    let slowdown = examples().into_iter().find(|path| path.ends_with("slowdown.toml")).expect("an example");
    scratch.run(&["run", slowdown.to_str().expect("UTF-8"), "--quick", "--out", "out"]).expect(0);
    let page = String::from_utf8(scratch.files("out")[Path::new("report.html")].clone()).expect("UTF-8");
    let notes: Vec<&str> = page.split("Flows started / completed / unfinished: DCTCP ").skip(1).collect();
    assert_eq!(notes.len(), 2, "both figures");
    let counts = notes[0].split(';').next().expect("counts").replace('\u{2009}', "");
    let counts: Vec<u64> = counts.split(" / ").map(|count| count.parse().expect("a number")).collect();
    assert!(counts[0] == counts[1] + counts[2] && counts[2] > 0, "{counts:?}");
}

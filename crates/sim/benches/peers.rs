//! The engine and ns-3 on the same work: `cargo bench -p bandmaster-sim --bench peers -- FOLDER [PROGRAM]`, where FOLDER holds
//! the sources of ns-3.37. They are built there when they are not (CMake, a C++ compiler, three minutes of two cores), at
//! `-O3` without logging and assertions. Without a folder it measures nothing. With PROGRAM it measures that `bandmaster`, a
//! released one, with all that it does around a run, instead of the engine as the bench is compiled.
//!
//! Whole processes in turn, their processor time, packet-hops of each by its own count.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bandmaster_core::scenario::{Options, Override, parse};
use bandmaster_sim::{RunOptions, run};
use comfy_table::Table;
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::Value;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Pairs of processes of each case.
const PAIRS: usize = 5;
/// Packet-hops of `cbr` in both: another number is other work.
const CBR_HOPS: f64 = 1_185_888.0;
/// Modules of ns-3 that its programs use.
const MODULES: &str = "core network internet point-to-point applications traffic-control stats bridge";

/// The same work for both.
struct Case {
    /// Of ns-3's program, too.
    name: &'static str,
    file: &'static str,
    set: &'static [&'static str],
    arguments: &'static [&'static str],
}

const CASES: [Case; 3] = [
    Case { name: "cbr", file: "bench/cbr.toml", set: &[], arguments: &[] },
    Case { name: "bulk", file: "bench/bulk.toml", set: &[], arguments: &["--simtime=5"] },
    Case {
        name: "bas",
        file: "validation/ns3-bas.toml",
        set: &["clients=16"],
        arguments: &["--n=16", "--ppm=100"],
    },
];

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.as_slice() {
        [] => println!("Nothing to compare with. Add `-- FOLDER`, where FOLDER has the sources of ns-3.37."),
        [own, file, set @ ..] if own == "--own" => println!("{{\"hops\": {}}}", own_hops(file, set)?),
        [folder, program @ ..] if !folder.starts_with('-') && program.len() < 2 => {
            println!("{}", compare(&fs::canonicalize(folder)?, program.first())?);
        }
        _ => return Err(format!("{arguments:?}: allowed are a folder and a program").into()),
    }
    Ok(())
}

/// Pairs of all cases, as a table.
fn compare(sources: &Path, program: Option<&String>) -> Outcome<Table> {
    let libraries = libraries(sources)?;
    let mut table = Table::new();
    table.set_header([
        "case",
        "bandmaster, M hops/s",
        "ns-3, k hops/s",
        "ratio of pairs: median (least - most)",
    ]);
    for case in CASES {
        let peer = peer(case.name, sources, &libraries)?;
        let set: Vec<String> = case.set.iter().map(|&key| key.to_owned()).collect();
        let expected = own_hops(case.file, &set)? as f64;
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let (hops, speed) = match program {
                Some(program) => (expected, expected / processor_time(&mut released(program, &case)?)?.1),
                None => {
                    timed(Command::new(std::env::current_exe()?).args(["--own", case.file]).args(case.set))?
                }
            };
            let (peers, pace) = timed(Command::new(&peer).args(case.arguments))?;
            if case.name == "cbr" && [hops, peers] != [CBR_HOPS; 2] {
                return Err(format!("cbr made {hops} and {peers} hops; both must make {CBR_HOPS}").into());
            }
            ours.push(speed / 1e6);
            theirs.push(pace / 1e3);
            ratios.push(speed / pace);
        }
        table.add_row([case.name.to_owned(), spread(ours, 1), spread(theirs, 0), spread(ratios, 0)]);
    }
    Ok(table)
}

/// The same run by a program.
fn released(program: &str, case: &Case) -> Outcome<Command> {
    let mut command = Command::new(fs::canonicalize(program)?);
    command.arg("run").arg(scenario(case.file));
    command.args(["--base", "--trials", "1", "--jobs", "1", "--no-report", "--quiet"]);
    command.args(case.set.iter().flat_map(|set| ["--set", set]));
    Ok(command)
}

/// What a process prints, and its processor time in seconds.
fn processor_time(command: &mut Command) -> Outcome<(Vec<u8>, f64)> {
    let before = children()?;
    let output = command.output()?;
    let took = children()? - before;
    // 1: a claim, which one trial does not decide.
    if !matches!(output.status.code(), Some(0 | 1)) {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok((output.stdout, took))
}

/// Hops of a process, and hops per second of its processor time.
fn timed(command: &mut Command) -> Outcome<(f64, f64)> {
    let (stdout, took) = processor_time(command)?;
    let told: Value = serde_json::from_slice(&stdout)?;
    let hops = told["hops"].as_f64().ok_or("no number of hops")?;
    Ok((hops, hops / took))
}

/// Processor time of the processes that have ended, in seconds.
fn children() -> Outcome<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let both = usage.user_time() + usage.system_time();
    Ok(both.tv_sec() as f64 + both.tv_usec() as f64 * 1e-6)
}

/// Median, least and most.
fn spread(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (median, least, most) = (values[values.len() / 2], values[0], values[values.len() - 1]);
    format!("{median:.digits$} ({least:.digits$} - {most:.digits$})")
}

fn scenario(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(file)
}

/// Runs the base case of a file once; returns its packet-hops.
fn own_hops(file: &str, set: &[String]) -> Outcome<u64> {
    let path = scenario(file);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let overrides = set.iter().filter_map(|text| text.split_once('='));
    let overrides = overrides.map(|(k, v)| Override { key: k.to_owned(), value: v.to_owned() }).collect();
    let options = Options { overrides, trials: Some(1), ..Options::default() };
    let study = parse(file, &text, &options).map_err(|errors| errors.to_string())?;
    let case = study.cases.iter().find(|case| case.base).ok_or("a file without a case")?;
    Ok(run(&case.scenario, 0, 0, &mut RunOptions::default())?.work.packet_hops)
}

/// The folder of ns-3's libraries, which are built when they are not there.
fn libraries(sources: &Path) -> Outcome<PathBuf> {
    let libraries = sources.join("build/lib");
    if !libraries.join("libns3.37-applications.so").is_file() {
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(sources).arg("-B").arg(sources.join("cmake-bandmaster")).args([
            "-DCMAKE_BUILD_TYPE=release",
            "-DCMAKE_CXX_FLAGS_RELEASE=-O3 -DNDEBUG",
            "-DNS3_LOG=OFF",
            "-DNS3_ASSERT=OFF",
            "-DNS3_EXAMPLES=OFF",
            "-DNS3_TESTS=OFF",
            "-DNS3_PYTHON_BINDINGS=OFF",
            "-DNS3_WARNINGS_AS_ERRORS=OFF",
            "-DNS3_ENABLED_MODULES=core;network;internet;point-to-point;applications;traffic-control",
        ]);
        succeed(&mut configure)?;
        // The rest of ns-3 wants modules that are not chosen.
        let cores = std::thread::available_parallelism()?;
        let mut build = Command::new("cmake");
        build.arg("--build").arg(sources.join("cmake-bandmaster")).arg("--parallel").arg(cores.to_string());
        build.arg("--target");
        succeed(build.args(MODULES.split(' ').map(|module| format!("lib{module}"))))?;
    }
    Ok(libraries)
}

/// Compiles ns-3's program of a case.
fn peer(name: &str, sources: &Path, libraries: &Path) -> Outcome<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/ns3");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ns3-{name}"));
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O3", "-DNDEBUG"]).arg("-o").arg(&built);
    compiler.arg("-I").arg(sources.join("build/include")).arg(folder.join(format!("{name}.cc")));
    compiler.arg("-L").arg(libraries).arg(format!("-Wl,-rpath,{}", libraries.display()));
    compiler.args(MODULES.split(' ').map(|module| format!("-lns3.37-{module}")));
    succeed(&mut compiler)?;
    Ok(built)
}

fn succeed(command: &mut Command) -> Outcome<()> {
    if command.status().map_err(|e| format!("{command:?}: {e}"))?.success() {
        return Ok(());
    }
    Err(format!("{command:?} failed").into())
}

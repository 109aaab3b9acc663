//! The engine and other simulators on the same work: `cargo bench -p bandmaster-sim --bench peers -- [--program PROGRAM] FOLDER...`,
//! where each FOLDER holds the sources of ns-3.37 or of htsim (Broadcom/csg-htsim). They are built there when they are not, at
//! `-O3` without logging and assertions: ns-3 with CMake and a C++ compiler in three minutes of two cores, htsim with its
//! Makefile. Paths are from `crates/sim`. Without a folder it measures nothing. With PROGRAM it measures that `bandmaster`, a
//! released one, with all that it does around a run, instead of the engine as the bench is compiled.
//!
//! Whole processes in turn, their processor time, packet-hops of each by its own count. Short ones are repeated: a process that
//! starts after another program has run costs more, whatever it does.

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
/// In each pair, a side runs again until its processes have taken so long, in seconds.
const LEAST: f64 = 1.0;
/// Packet-hops of `cbr` in both: another number is other work.
const CBR_HOPS: f64 = 1_185_888.0;
/// Of the compiler.
const FLAGS: [&str; 3] = ["-std=c++17", "-O3", "-DNDEBUG"];
/// Modules of ns-3 that its programs use.
const MODULES: &str = "core network internet point-to-point applications traffic-control stats bridge";

/// A simulator to compare with.
struct Peer {
    name: &'static str,
    /// A file of its sources.
    sign: &'static str,
    /// The folder of its programs.
    programs: &'static str,
    /// Builds its libraries; returns what the compiler of a program needs.
    build: fn(&Path) -> Outcome<Vec<String>>,
    cases: &'static [Case],
}

/// The same work for both.
struct Case {
    name: &'static str,
    file: &'static str,
    set: &'static [&'static str],
    /// The peer's program and its arguments.
    program: &'static [&'static str],
    /// The largest difference of the hops, as a share of ours.
    difference: f64,
}

const PEERS: [Peer; 2] = [
    Peer {
        name: "ns-3",
        sign: "src/core/model/simulator.h",
        programs: "ns3",
        build: ns3,
        cases: &[
            CBR,
            Case {
                name: "bulk",
                file: "bench/bulk.toml",
                set: &[],
                program: &["bulk", "--simtime=5"],
                difference: f64::INFINITY,
            },
            Case {
                name: "bas",
                file: "validation/ns3-bas.toml",
                // One case, as the program has: the file's sweep is not read.
                set: &["clients=16", "sweeps=[]", "figures=[]"],
                program: &["bas", "--n=16", "--ppm=100"],
                difference: f64::INFINITY,
            },
        ],
    },
    Peer {
        name: "htsim",
        sign: "sim/eventlist.cpp",
        programs: "htsim",
        build: htsim,
        cases: &[
            CBR,
            Case {
                name: "bulk",
                file: "bench/bulk.toml",
                set: &["run.duration=5s"],
                program: &["bulk"],
                difference: f64::INFINITY,
            },
            Case {
                name: "permutation",
                file: "bench/fat-trees.toml",
                set: &["compare=[]", "network.k=8", "run.duration=8500us", "flows.load.stop=8ms"],
                program: &["permutation"],
                difference: 0.01,
            },
            Case {
                name: "permutation, TCP",
                file: "bench/fat-trees.toml",
                set: &[
                    "compare=[]",
                    "network.k=8",
                    "run.duration=30ms",
                    "flows=[{ name = 'load', from = 'hosts', to = 'hosts', pairing = 'permutation', \
                     start = 'uniform(0s, 2us)' }]",
                    // htsim's TCP.
                    "tcp.congestion-control=newreno",
                    "tcp.sack=false",
                    "tcp.delayed-ack=1pkt",
                    // Without it half of the flows wait for most of the run.
                    "tcp.min-rto=1ms",
                ],
                program: &["permutation", "tcp"],
                difference: f64::INFINITY,
            },
        ],
    },
];

const CBR: Case = Case { name: "cbr", file: "bench/cbr.toml", set: &[], program: &["cbr"], difference: 0.0 };

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let (program, folders) = match arguments.as_slice() {
        [own, file, set @ ..] if own == "--own" => {
            println!("{{\"hops\": {}}}", own_hops(file, set)?);
            return Ok(());
        }
        [option, program, folders @ ..] if option == "--program" => {
            (Some(fs::canonicalize(program).map_err(|e| format!("{program}: {e}"))?), folders)
        }
        folders => (None, folders),
    };
    if folders.is_empty() {
        println!(
            "Nothing to compare with. Add `-- FOLDER`, where FOLDER has the sources of ns-3.37 or htsim."
        );
    }
    for folder in folders {
        let sources = fs::canonicalize(folder).map_err(|e| format!("{folder}: {e}"))?;
        let peer = PEERS.iter().find(|peer| sources.join(peer.sign).is_file());
        let peer = peer.ok_or_else(|| format!("{folder}: neither the sources of ns-3 nor of htsim"))?;
        println!("{}", compare(peer, &sources, program.as_deref())?);
    }
    Ok(())
}

/// Pairs of all cases, as a table.
fn compare(peer: &Peer, sources: &Path, program: Option<&Path>) -> Outcome<Table> {
    let libraries = (peer.build)(sources)?;
    let mut table = Table::new();
    table.set_header([
        "case".to_owned(),
        format!("hops, bandmaster / {}", peer.name),
        "bandmaster, M hops/s".to_owned(),
        format!("{}, k hops/s", peer.name),
        "ratio of pairs: median (least - most)".to_owned(),
    ]);
    for case in peer.cases {
        let theirs = compiled(peer, case, &libraries)?;
        let set: Vec<String> = case.set.iter().map(|&key| key.to_owned()).collect();
        let expected = own_hops(case.file, &set)? as f64;
        let (mut speeds, mut paces, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let mut made = 0.0;
        for _ in 0..PAIRS {
            let (hops, speed) = match program {
                Some(program) => (expected, expected / processor_time(&mut released(program, case))?.time),
                None => {
                    timed(Command::new(std::env::current_exe()?).args(["--own", case.file]).args(case.set))?
                }
            };
            let (peers, pace) = timed(Command::new(&theirs).args(&case.program[1..]))?;
            if (hops - peers).abs() > case.difference * hops || (case.name == "cbr" && hops != CBR_HOPS) {
                return Err(format!("{}: {hops} and {peers} hops are not the same work", case.name).into());
            }
            made = peers;
            speeds.push(speed / 1e6);
            paces.push(pace / 1e3);
            ratios.push(speed / pace);
        }
        table.add_row([
            case.name.to_owned(),
            format!("{expected} / {made}"),
            spread(speeds, 1),
            spread(paces, 0),
            spread(ratios, 1),
        ]);
    }
    Ok(table)
}

/// The same run by a program.
fn released(program: &Path, case: &Case) -> Command {
    let mut command = Command::new(program);
    command.arg("run").arg(scenario(case.file));
    // One trial would leave claims undecided, which is a failure.
    command.args(["--base", "--trials", "1", "--jobs", "1", "--no-report", "--quiet", "--set", "claims=[]"]);
    command.args(case.set.iter().flat_map(|set| ["--set", set]));
    command
}

/// What a process prints, and the processor time that one takes, in seconds: the mean of as many as take [`LEAST`].
struct Ended {
    stdout: Vec<u8>,
    time: f64,
}

fn processor_time(command: &mut Command) -> Outcome<Ended> {
    let before = children()?;
    for runs in 1.. {
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let took = children()? - before;
        if took >= LEAST {
            return Ok(Ended { stdout: output.stdout, time: took / f64::from(runs) });
        }
    }
    unreachable!("processes take time")
}

/// Hops of a process, and hops per second of its processor time.
fn timed(command: &mut Command) -> Outcome<(f64, f64)> {
    let Ended { stdout, time } = processor_time(command)?;
    let told: Value = serde_json::from_slice(&stdout)?;
    let hops = told["hops"].as_f64().ok_or("no number of hops")?;
    Ok((hops, hops / time))
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

/// ns-3's libraries, which are built when they are not there.
fn ns3(sources: &Path) -> Outcome<Vec<String>> {
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
    let folder = libraries.display();
    let include = format!("-I{}", sources.join("build/include").display());
    let mut needs = vec![include, format!("-L{folder}"), format!("-Wl,-rpath,{folder}")];
    needs.extend(MODULES.split(' ').map(|module| format!("-lns3.37-{module}")));
    Ok(needs)
}

/// htsim's library, by its Makefile in a folder of its own: what was built there before has other options.
fn htsim(sources: &Path) -> Outcome<Vec<String>> {
    let (sim, built) = (sources.join("sim"), sources.join("bandmaster"));
    fs::create_dir_all(&built)?;
    let include = format!("-I{}", sim.display());
    let mut make = Command::new("make");
    make.arg("--silent").arg(format!("--jobs={}", std::thread::available_parallelism()?));
    make.arg("--directory").arg(&built).arg("--file").arg(sim.join("Makefile"));
    make.args(["cpp", "h"].map(|kind| format!("--eval=vpath %.{kind} {}", sim.display())));
    make.args(["libhtsim.a", "CC=c++"]).arg(format!("CFLAGS={} {include}", FLAGS.join(" ")));
    succeed(&mut make)?;
    Ok(vec![include, built.join("libhtsim.a").display().to_string()])
}

/// Compiles the peer's program of a case.
fn compiled(peer: &Peer, case: &Case, needs: &[String]) -> Outcome<PathBuf> {
    let program = case.program[0];
    let source = format!("{}/benches/{}/{program}.cc", env!("CARGO_MANIFEST_DIR"), peer.programs);
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{program}", peer.programs));
    succeed(Command::new("c++").args(FLAGS).arg("-o").arg(&built).arg(source).args(needs))?;
    Ok(built)
}

fn succeed(command: &mut Command) -> Outcome<()> {
    if command.status().map_err(|e| format!("{command:?}: {e}"))?.success() {
        return Ok(());
    }
    Err(format!("{command:?} failed").into())
}

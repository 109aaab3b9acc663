//! Speed and memory of the engine: `cargo bench -p bandmaster-sim`, with `-- --json` for machines.
//!
//! Times are the thread's own CPU time where Linux states it, so that a busy machine disturbs little. A loop over a
//! binary heap of integers runs in turn with every measurement: hops per step of it compare across machines.

#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

#[path = "../../core/benches/yardstick/mod.rs"]
mod yardstick;

use std::error::Error;
use std::path::Path;
use std::process::Command;

use bandmaster_core::report::Work;
use bandmaster_core::scenario::{Options, Override, Scenario, parse};
use bandmaster_core::time::Span;
use bandmaster_sim::{RunOptions, run};
use comfy_table::Table;
use serde_json::{Value, json};

use yardstick::{processor, reference, seconds, spread};

/// Measurements of everything; values are medians.
const ROUNDS: usize = 5;
/// Steps of the reference loop.
const REFERENCE_STEPS: u32 = 1_000_000;
/// Hops of `cbr.toml`, known beforehand: another number is other work.
const CBR_HOPS: u64 = 1_185_888;

/// RED on the bottlenecks of `cbr.toml` and `bulk.toml`, with their limits.
const CBR_RED: &str =
    r#"{ discipline = "red", limit = "100000pkt", min-th = "25000pkt", max-th = "50000pkt" }"#;
const BULK_RED: &str = r#"{ discipline = "red", limit = "833pkt", min-th = "200pkt", max-th = "600pkt" }"#;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => print(&measure()?),
        ["--json"] => println!("{:#}", measure()?),
        // A process of its own, because the peak of memory never falls.
        ["--peak", variant] => println!("{}", peak_of_run(variant)?),
        // Minutes: not part of the others. Another simulated time than the file's may be given.
        ["--fat-tree"] => fat_tree(None)?,
        ["--fat-tree", duration] => fat_tree(Some(duration))?,
        ["--all-to-all"] => all_to_all("3864", None, None)?,
        ["--all-to-all", hosts] => all_to_all(hosts, None, None)?,
        ["--all-to-all", hosts, size] => all_to_all(hosts, Some(size), None)?,
        // The first part of the round only.
        ["--all-to-all", hosts, size, duration] => all_to_all(hosts, Some(size), Some(duration))?,
        _ => {
            let allowed =
                "--json, --peak VARIANT, --fat-tree [DURATION] and --all-to-all [HOSTS [SIZE [DURATION]]]";
            return Err(format!("{arguments:?}: allowed are {allowed}").into());
        }
    }
    Ok(())
}

fn measure() -> Outcome<Value> {
    let yardsticks = [
        ("cbr", "bench/cbr.toml", vec![]),
        ("bulk", "bench/bulk.toml", vec![]),
        // The same behind RED, without and with early drops.
        ("cbr-red", "bench/cbr.toml", vec![("network.bottleneck.queue", CBR_RED)]),
        ("bulk-red", "bench/bulk.toml", vec![("network.bottleneck.queue", BULK_RED)]),
        ("bas", "validation/ns3-bas.toml", vec![("clients", "16")]),
    ];
    let mut speed = Vec::new();
    for (name, file, overrides) in yardsticks {
        let scenarios = scenarios(file, &overrides)?;
        let (_, base) = scenarios.first().ok_or("a file without a case")?;
        speed.push(timed(name, base)?);
    }
    let hops = &speed[0]["hops"];
    if *hops != CBR_HOPS {
        return Err(format!("cbr made {hops} hops; it must make {CBR_HOPS}").into());
    }
    let mut flatness = Vec::new();
    let sizes = [
        ("flows of UDP", "bench/flows-udp.toml"),
        ("flows of TCP", "bench/flows-tcp.toml"),
        ("k of a fat tree, UDP", "bench/fat-trees.toml"),
    ];
    for (size, file) in sizes {
        let mut rows = Vec::new();
        for (name, scenario) in scenarios(file, &[])? {
            rows.push(timed(&name, &scenario)?);
        }
        let nanos: Vec<f64> = rows.iter().filter_map(|row| row["nanos_per_hop"]["median"].as_f64()).collect();
        let least = nanos.iter().copied().fold(f64::INFINITY, f64::min);
        let most = nanos.iter().copied().fold(0.0, f64::max);
        flatness.push(json!({ "size": size, "rows": rows, "most_over_least": most / least }));
    }
    let mut memory = Vec::new();
    for state in ["planned", "open"] {
        let (few, many) = (peak(&format!("few-{state}"))?, peak(state)?);
        if let (Some(few), Some(many)) = (few, many) {
            // 10 flows against 100,000 in one network.
            let bytes = (many - few) * 1024.0 / 99_990.0;
            memory.push(json!({ "state": state, "bytes_per_flow": bytes, "peak_mib": many / 1024.0 }));
        }
    }
    Ok(
        json!({ "machine": processor(), "rounds": ROUNDS, "speed": speed, "flatness": flatness, "memory": memory }),
    )
}

/// Runs `scenario` in turns with the reference loop.
fn timed(name: &str, scenario: &Scenario) -> Outcome<Value> {
    let mut nothing = scenario.clone();
    nothing.run.duration = Span::from_nanos(1);
    let (mut build, mut rate, mut nanos, mut per_step) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut work = Work::default();
    for _ in 0..ROUNDS {
        let step = seconds(|| reference(REFERENCE_STEPS)).0 / f64::from(REFERENCE_STEPS);
        // A run that ends at once builds and drops the same world.
        let (built, record) = seconds(|| run(&nothing, 0, 0, &mut RunOptions::default()));
        record?;
        let (whole, record) = seconds(|| run(scenario, 0, 0, &mut RunOptions::default()));
        work = record?.work;
        let per_hop = (whole - built) / work.packet_hops as f64;
        build.push(built * 1e3);
        rate.push(1e-6 / per_hop);
        nanos.push(per_hop * 1e9);
        per_step.push(step / per_hop);
    }
    Ok(json!({
        "name": name,
        "hops": work.packet_hops,
        "events": work.events,
        "build_ms": spread(build),
        "million_hops_per_second": spread(rate),
        "nanos_per_hop": spread(nanos),
        "hops_per_reference_step": spread(per_step),
    }))
}

/// The base cases of a file, with their variants' names.
fn scenarios(file: &str, overrides: &[(&str, &str)]) -> Outcome<Vec<(String, Scenario)>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(file);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let overrides = overrides.iter().map(|(k, v)| Override { key: (*k).to_owned(), value: (*v).to_owned() });
    let options = Options { overrides: overrides.collect(), trials: Some(1), ..Options::default() };
    let study = parse(file, &text, &options).map_err(|errors| errors.to_string())?;
    Ok(study.cases.into_iter().filter(|case| case.base).map(|case| (case.variant, case.scenario)).collect())
}

/// Peak of resident memory in KiB of a process that runs one variant of `idle.toml`; `None` where it is not known.
fn peak(variant: &str) -> Outcome<Option<f64>> {
    let output = Command::new(std::env::current_exe()?).args(["--peak", variant]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse().ok())
}

/// Incast to all racks of a fat tree of 1,024 hosts: wall time and memory.
fn fat_tree(duration: Option<&str>) -> Outcome<()> {
    // A sample of the whole run: nothing is looked at meanwhile.
    let overrides: Vec<(&str, &str)> = duration
        .iter()
        .flat_map(|duration| [("run.duration", *duration), ("run.sample", *duration)])
        .collect();
    let scenarios = scenarios("bench/incast-fat-tree.toml", &overrides)?;
    let (_, scenario) = scenarios.first().ok_or("a file without a case")?;
    let start = std::time::Instant::now();
    let record = run(scenario, 0, 0, &mut RunOptions::default())?;
    let wall = start.elapsed().as_secs_f64();
    let hops = record.work.packet_hops;
    println!(
        "{} simulated: {wall:.1} s, {hops} hops, {:.2} M hops/s, peak {} KiB",
        scenario.run.duration,
        hops as f64 / wall / 1e6,
        peak_so_far()
    );
    for name in ["rounds", "round_goodput", "round_time_mean", "round_time_max", "drops", "rtos"] {
        println!("{name}: {:.6}", record.metric(name).unwrap_or(f64::NAN));
    }
    Ok(())
}

/// SciNet's network, or a part of it: every host sends a message to every other.
fn all_to_all(hosts: &str, size: Option<&str>, duration: Option<&str>) -> Outcome<()> {
    let number: u32 = hosts.parse().map_err(|e| format!("{hosts} hosts: {e}"))?;
    // Whole racks, or racks of half the size whose uplink is half as fast.
    let (rack, uplink) = if number.is_multiple_of(42) { (42, "10gbit") } else { (21, "5gbit") };
    if number == 0 || !number.is_multiple_of(rack) {
        return Err(format!("{hosts} hosts do not fill racks of 42 or 21").into());
    }
    let (leaves, rack) = ((number / rack).to_string(), rack.to_string());
    let mut overrides = vec![
        ("network.leaves", leaves.as_str()),
        ("network.size", rack.as_str()),
        ("network.fabric.rate", uplink),
    ];
    overrides.extend(size.map(|size| ("flows.messages.size", size)));
    overrides.extend(duration.map(|duration| ("run.duration", duration)));
    let (read, scenarios) = wall(|| scenarios("bench/all-to-all.toml", &overrides));
    let scenarios = scenarios?;
    let (_, scenario) = scenarios.first().ok_or("a file without a case")?;
    let mut nothing = scenario.clone();
    nothing.run.duration = Span::from_nanos(1);
    let (built, record) = wall(|| run(&nothing, 0, 0, &mut RunOptions::default()));
    record?;
    let before = peak_so_far();
    println!("{hosts} hosts: scenario read in {read:.2} s, network built in {built:.2} s, peak {before} KiB");
    let step = seconds(|| reference(REFERENCE_STEPS)).0 / f64::from(REFERENCE_STEPS);
    let (whole, (spent, record)) = wall(|| seconds(|| run(scenario, 0, 0, &mut RunOptions::default())));
    let (record, peak) = (record?, peak_so_far());
    let metric = |name: &str| record.metric(name).unwrap_or(f64::NAN);
    let (hops, flows) = (record.work.packet_hops, metric("completed"));
    let spent = spent - built;
    println!(
        "{flows} flows of {}: {whole:.1} s, {spent:.1} s of CPU time, {hops} hops, {:.2} M hops/s, {:.2} hops per reference step, {} events",
        size.unwrap_or("64KiB"),
        hops as f64 / spent / 1e6,
        step * hops as f64 / spent,
        record.work.events,
    );
    if let (Ok(before), Ok(peak)) = (before.parse::<f64>(), peak.parse::<f64>()) {
        let all = f64::from(number) * f64::from(number - 1);
        println!(
            "peak {peak} KiB: {:.1} bytes per flow on top of the network",
            (peak - before) * 1024.0 / all
        );
    }
    for name in ["rounds", "round_goodput", "round_time_mean", "fct_mean", "fct_p99", "drops", "rtos"] {
        println!("{name}: {:.6}", metric(name));
    }
    Ok(())
}

/// Wall time in seconds of `work`, and what it gives.
fn wall<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = std::time::Instant::now();
    let result = work();
    (start.elapsed().as_secs_f64(), result)
}

fn peak_of_run(variant: &str) -> Outcome<String> {
    let scenarios = scenarios("bench/idle.toml", &[])?;
    let found = scenarios.into_iter().find(|(name, _)| name == variant);
    let (_, mut scenario) = found.ok_or_else(|| format!("idle.toml has no variant `{variant}`"))?;
    if variant.ends_with("planned") {
        // A file cannot say that flows start after the end.
        scenario.run.duration = Span::from_secs(5);
    }
    run(&scenario, 0, 0, &mut RunOptions::default())?;
    Ok(peak_so_far())
}

/// Peak of this process's resident memory in KiB.
fn peak_so_far() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or("unknown", |text| text.trim().trim_end_matches(" kB")).to_owned()
}

fn print(all: &Value) {
    println!("{}, {} cores; medians of {ROUNDS}\n", all["machine"]["model"], all["machine"]["cores"]);
    print_rows("scenario", &all["speed"]);
    for table in all["flatness"].as_array().into_iter().flatten() {
        print_rows(table["size"].as_str().unwrap_or_default(), &table["rows"]);
        println!("most over least: {:.2}\n", table["most_over_least"].as_f64().unwrap_or(f64::NAN));
    }
    let mut table = bare_table();
    table.set_header(["idle TCP flows", "bytes per flow", "peak (MiB)"]);
    for row in all["memory"].as_array().into_iter().flatten() {
        let number = |key: &str| format!("{:.0}", row[key].as_f64().unwrap_or(f64::NAN));
        table.add_row([
            row["state"].as_str().unwrap_or_default().to_owned(),
            number("bytes_per_flow"),
            number("peak_mib"),
        ]);
    }
    println!("{table}");
}

fn print_rows(first: &str, rows: &Value) {
    let mut table = bare_table();
    table.set_header([
        first,
        "hops",
        "build (ms)",
        "M hops/s",
        "min .. max",
        "ns per hop",
        "hops per reference step",
    ]);
    for row in rows.as_array().into_iter().flatten() {
        let number = |key: &str, of: &str| row[key][of].as_f64().unwrap_or(f64::NAN);
        let rate = |of| number("million_hops_per_second", of);
        table.add_row([
            row["name"].as_str().unwrap_or_default().to_owned(),
            row["hops"].to_string(),
            format!("{:.2}", number("build_ms", "median")),
            format!("{:.2}", rate("median")),
            format!("{:.2} .. {:.2}", rate("min"), rate("max")),
            format!("{:.1}", number("nanos_per_hop", "median")),
            format!("{:.2}", number("hops_per_reference_step", "median")),
        ]);
    }
    println!("{table}\n");
}

fn bare_table() -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table
}

//! A line for the base case of every variant of every scenario: hops, events, and a digest of the record of trial 0.
//!
//! Two commits give the same records when they print the same: `cargo run --release -p bandmaster-sim --example digests
//! [PART OF `FOLDER/FILE VARIANT` ...]`. What takes minutes has to be named.
//! `WITHOUT=control_rate,refusals` leaves metrics out of the digests.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use bandmaster_core::scenario::{Files, Options, parse};
use bandmaster_sim::{RunOptions, run};
use sha2::{Digest, Sha256};

/// They take minutes.
const LONG: [&str; 4] = ["bench/all-to-all", "bench/incast-fat-tree", "bench/idle", "er2bc/soak"];

#[derive(Debug)]
struct Beside(PathBuf);

impl Files for Beside {
    fn read(&self, name: &str) -> Result<String, String> {
        fs::read_to_string(self.0.join(name)).map_err(|e| e.to_string())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let without = std::env::var("WITHOUT").unwrap_or_default();
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files = Vec::new();
    for folder in fs::read_dir(&root)? {
        for file in fs::read_dir(folder?.path())? {
            files.extend(Some(file?.path()).filter(|path| path.extension().is_some_and(|e| e == "toml")));
        }
    }
    files.sort();
    for path in files {
        let name = path.strip_prefix(&root)?.with_extension("").display().to_string();
        if wanted.is_empty() && LONG.contains(&name.as_str()) {
            continue;
        }
        let beside = Beside(path.parent().ok_or("no folder")?.to_owned());
        let options = Options { trials: Some(1), files: Some(&beside), ..Options::default() };
        let study =
            parse(&name, &fs::read_to_string(&path)?, &options).map_err(|errors| errors.to_string())?;
        for case in study.cases.iter().filter(|case| case.base) {
            let case_name = format!("{name} {}", case.variant);
            if !wanted.is_empty() && !wanted.iter().any(|part| case_name.contains(part)) {
                continue;
            }
            let mut record = run(&case.scenario, 0, 0, &mut RunOptions::default())?;
            record.metrics.retain(|(name, _)| !without.split(',').any(|metric| metric == name));
            let series: Vec<_> = record.series.iter().map(|s| (&s.entity, s.metric, &s.values)).collect();
            let spread: Vec<_> = record.distributions.iter().map(|d| (d.metric, &d.quantiles)).collect();
            let digest = Sha256::digest(serde_json::to_vec(&(&record.metrics, series, spread, record.work))?);
            let short: String = bandmaster_core::hex::hex(&digest[..8]);
            println!("{short} {:>12} {:>12} {case_name}", record.work.packet_hops, record.work.events);
        }
    }
    Ok(())
}

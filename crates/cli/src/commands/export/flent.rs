//! Data files of Flent (<https://flent.org>), version 4 of its format: gzipped JSON with `version`, `metadata`, `x_values`,
//! `results` and `raw_values`.
//!
//! A file is of the test `tcp_nup`, which Flent can plot: `TCP upload::1`, `TCP upload::2`, ... of as many streams as
//! `TEST_PARAMETERS` states, their sum, mean and Jain index, and `Ping (ms) ICMP`. Other metrics are added under their own names.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use bandmaster_table::read::{Table, Value};
use flate2::{Compression, GzBuilder};
use serde_json::{Map, json};

use super::{Written, open, unreadable};
use crate::exit::Failure;
use crate::report::VERSION;
use crate::report::folder::OutputFolder;
use crate::report::manifest::json_lines;

/// Version of Flent's format.
const FORMAT: u32 = 4;

/// A simulation has no date, and the same results give the same bytes.
const TIME: &str = "1970-01-01T00:00:00.000000Z";

/// Columns before those of metrics.
const KEYS: [&str; 6] = ["scenario", "variant", "points", "trial", "time_s", "entity"];

/// Series of one trial.
#[derive(Default)]
struct Trial {
    /// Scenario, variant, points, trial.
    key: Vec<String>,
    times: Vec<f64>,
    /// Entities in order, and the values of every metric.
    entities: Vec<(String, Vec<Vec<Option<f64>>>)>,
}

/// Writes a file for each trial of `series.parquet`.
pub(super) fn write(tables: &[(&str, PathBuf)], folder: &OutputFolder) -> Result<Written, Failure> {
    let Some((_, path)) = tables.iter().find(|(name, _)| *name == "series") else { return Ok(Vec::new()) };
    let table = open(path)?;
    if !table.columns.iter().take(KEYS.len()).eq(KEYS.iter()) {
        let place = path.display();
        return Err(Failure::usage(format!(
            "{place}: has other columns; this folder is of an older version"
        )));
    }
    let metrics: Vec<String> = table.columns[KEYS.len()..].to_vec();
    let mut written = Vec::new();
    let mut trial = Trial::default();
    let mut finish = |trial: &Trial| -> Result<(), Failure> {
        if trial.times.is_empty() {
            return Ok(());
        }
        let name = trial.file_name();
        folder.write(&name, |out| trial.write(&name, &metrics, out))?;
        written.push((name, Some(trial.times.len() as u64)));
        Ok(())
    };
    push_all(table, &mut trial, &mut finish).map_err(|stop| match stop {
        Stop::Read(error) => unreadable(path, &error),
        Stop::Write(failure) => failure,
    })?;
    finish(&trial)?;
    if written.is_empty() {
        let place = path.display();
        return Err(Failure::usage(format!(
            "{place}: has no series; run the scenario with measure.record = \"groups\" or \"flows\""
        )));
    }
    Ok(written)
}

enum Stop {
    Read(io::Error),
    Write(Failure),
}

/// Takes rows into `trial`; where another begins, the one before is finished.
fn push_all(
    table: Table,
    trial: &mut Trial,
    finish: &mut impl FnMut(&Trial) -> Result<(), Failure>,
) -> Result<(), Stop> {
    for row in table {
        let row = row.map_err(Stop::Read)?;
        let (keys, values) = row.split_at(KEYS.len().min(row.len()));
        let [scenario, variant, points, number, Value::F64(time), Value::Text(entity)] = keys else {
            return Err(Stop::Read(io::Error::new(io::ErrorKind::InvalidData, "a row lacks its keys")));
        };
        let key: Vec<String> = [scenario, variant, points, number].map(text).to_vec();
        if trial.key != key {
            finish(&std::mem::take(trial)).map_err(Stop::Write)?;
            trial.key = key;
        }
        if trial.entities.last().is_none_or(|(last, _)| last != entity) {
            trial.entities.push((entity.clone(), vec![Vec::new(); values.len()]));
        }
        if trial.entities.len() == 1 {
            trial.times.push(*time);
        }
        if let Some((_, series)) = trial.entities.last_mut() {
            for (series, value) in series.iter_mut().zip(values) {
                series.push(number_of(value));
            }
        }
    }
    Ok(())
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Whole(number) => number.to_string(),
        _ => String::new(),
    }
}

fn number_of(value: &Value) -> Option<f64> {
    match value {
        // By way of its decimals: 0.1 is 0.1, not 0.10000000149011612.
        Value::F32(number) => number.to_string().parse().ok().filter(|number: &f64| number.is_finite()),
        Value::F64(number) => Some(*number).filter(|number| number.is_finite()),
        Value::Whole(number) => Some(*number as f64),
        _ => None,
    }
}

impl Trial {
    fn file_name(&self) -> String {
        let [scenario, variant, points, trial] = &self.key[..] else { return String::new() };
        let parts = [scenario, variant, points].into_iter().filter(|part| !part.is_empty());
        let name = parts.cloned().collect::<Vec<_>>().join("-");
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-=".contains(c) { c } else { '_' };
        let name: String = name.chars().map(plain).collect();
        format!("{name}-trial{trial}.flent.gz")
    }

    /// The series of a metric by entity, where it has values.
    fn of<'a>(&'a self, metrics: &[String], name: &str) -> Vec<(&'a str, &'a Vec<Option<f64>>)> {
        let Some(at) = metrics.iter().position(|metric| metric == name) else { return Vec::new() };
        let entities = self.entities.iter().map(|(entity, series)| (entity.as_str(), &series[at]));
        entities.filter(|(_, series)| series.iter().any(Option::is_some)).collect()
    }

    fn write(&self, name: &str, metrics: &[String], out: &mut impl Write) -> io::Result<()> {
        let mut results: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
        let throughput = self.of(metrics, "throughput");
        let flows = self.of(metrics, "srtt");
        // Flows where they were recorded, else groups, else all together.
        let is_flow = |entity: &str| flows.iter().any(|(flow, _)| *flow == entity);
        let mut streams: Vec<_> = throughput.iter().filter(|(entity, _)| is_flow(entity)).collect();
        if streams.is_empty() {
            streams = throughput.iter().filter(|(entity, _)| *entity != "all").collect();
        }
        if streams.is_empty() {
            streams = throughput.iter().collect();
        }
        let mut meta = Map::new();
        for (number, (entity, series)) in (1..).zip(&streams) {
            let name = format!("TCP upload::{number}");
            meta.insert(name.clone(), json!({"UNITS": "Mbits/s", "ENTITY": entity}));
            results.insert(name, (*series).clone());
        }
        let mean = |series: &[&Vec<Option<f64>>], at: usize| {
            let values: Vec<f64> = series.iter().filter_map(|series| *series.get(at)?).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let mean_of = |series: &[&Vec<Option<f64>>]| -> Vec<Option<f64>> {
            (0..self.times.len()).map(|at| mean(series, at)).collect()
        };
        let series: Vec<_> = streams.iter().map(|(_, series)| *series).collect();
        results.insert("TCP upload avg".to_owned(), mean_of(&series));
        let all = |name| self.of(metrics, name).into_iter().find(|(entity, _)| *entity == "all");
        for (name, metric) in [("TCP upload sum", "throughput"), ("TCP upload fairness", "jain")] {
            results.extend(all(metric).map(|(_, series)| (name.to_owned(), series.clone())));
        }
        if !flows.is_empty() {
            let series: Vec<_> = flows.iter().map(|(_, series)| *series).collect();
            results.insert("Ping (ms) ICMP".to_owned(), mean_of(&series));
        }
        for metric in metrics.iter().filter(|metric| *metric != "throughput") {
            for (entity, series) in self.of(metrics, metric) {
                results.insert(format!("{metric} {entity}"), series.clone());
            }
        }
        // Every series gets one value per time.
        for series in results.values_mut() {
            series.resize(self.times.len(), None);
        }
        // Flent takes a file without raw values for an empty one. Their time is that since T0, which is 0.
        let point = |(time, value): (&f64, &Option<f64>)| value.map(|value| json!({"t": time, "val": value}));
        let points = |series: &Vec<Option<f64>>| self.times.iter().zip(series).filter_map(point).collect();
        let raw: BTreeMap<&String, Vec<_>> =
            results.iter().map(|(name, series)| (name, points(series))).collect();
        let length = self.times.last().copied().unwrap_or_default();
        let title =
            self.key[1..].iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", ");
        let data = json!({
            "version": FORMAT,
            "metadata": {
                "NAME": "tcp_nup",
                "TITLE": format!("{} {title}", self.key[0]),
                "TIME": TIME,
                "T0": TIME,
                "HOST": "simulated",
                "HOSTS": ["simulated"],
                "LOCAL_HOST": "simulated",
                "LENGTH": length,
                "TOTAL_LENGTH": length,
                "STEP_SIZE": self.times.first(),
                "IP_VERSION": 4,
                "DATA_FILENAME": name,
                "FLENT_VERSION": format!("bandmaster {VERSION}"),
                "NOTE": "Simulated by bandmaster. `Ping (ms) ICMP` is the mean smoothed round-trip time of the senders.",
                "TEST_PARAMETERS": {"upload_streams": streams.len().to_string()},
                "SERIES_META": meta,
            },
            "x_values": self.times,
            "results": results,
            "raw_values": raw,
        });
        // Without a name and a time: the same bytes every time.
        let mut gzip = GzBuilder::new().write(out, Compression::default());
        gzip.write_all(json_lines(&data, 2).as_bytes())?;
        gzip.finish().map(drop)
    }
}

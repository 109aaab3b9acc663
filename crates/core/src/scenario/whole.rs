//! One whole scenario from the raw file, after overrides.

use super::keys::{self, SCHEME_ENABLED};
use super::model::{ControlPlane, Measure, RecordDetail, RunPlan, Scenario, Window};
use super::raw::Item;
use super::section::{Layer, Reader, Section, joined};
use super::words;
use super::{network, traffic};
use crate::scheme::{self, SchemeConfig};
use crate::time::{Span, Time};
use crate::topology::Topology;

/// The most sampling intervals of a run.
const MOST_SAMPLES: u64 = 10_000_000;

/// Reads the scenario; `None` when something is wrong with it. `quick` takes the trials of a quick run.
pub(super) fn read(reader: &mut Reader, root: &Item, quick: bool) -> Option<Scenario> {
    let errors_before = reader.errors.len();
    let file = reader.section(&keys::FILE, &Layer::new("", root));
    if file.item("version").is_none() {
        reader.fail_with(&file.place, "version", "is missing", "write version = 1 at the top of the file");
    }
    if let Some(version) = file.integer("version").filter(|v| *v != 1) {
        reader.fail_key(&file, "version", format!("{version} is not known; this program reads version 1"));
    }
    let name = file.text("name");
    if let Some(name) = &name
        && !(words::is_name(name) && name.chars().all(|c| c != '_' && !c.is_ascii_uppercase()))
    {
        reader.fail_key(&file, "name", format!("\"{name}\" is not a word of a-z, 0-9 and -"));
    }
    let run = run_plan(reader, &file, quick);
    let duration = run.as_ref().map(|r| r.duration);
    let topology = network::read(reader, &file, file.integer("clients"));
    let flows = traffic::read(reader, &file, topology.as_ref(), duration);
    let schemes = schemes(reader, &file, topology.as_ref());
    let control = control(reader, &file);
    let measure = measure(reader, &file, topology.as_ref(), run.as_ref());
    if reader.errors.len() > errors_before {
        return None;
    }
    Some(Scenario {
        name: name?,
        run: run?,
        topology: topology?,
        flows,
        schemes,
        control: control?,
        measure: measure?,
    })
}

fn run_plan(reader: &mut Reader, file: &Section<'_>, quick: bool) -> Option<RunPlan> {
    file.item("run")?;
    let errors_before = reader.errors.len();
    let layer = reader.table(file, "run");
    let section = reader.section(&keys::RUN, &layer);
    let (duration, warm_up, sample) =
        (section.span("duration"), section.span("warm-up"), section.span("sample"));
    if let Some(duration) = duration {
        if duration.is_zero() {
            reader.fail_key(&section, "duration", "must be longer than 0s");
        } else if let Some(warm_up) = warm_up.filter(|w| *w >= duration) {
            reader.fail_key(
                &section,
                "warm-up",
                format!("\"{warm_up}\" is not shorter than the run, {duration}"),
            );
        }
        if let Some(sample) = sample {
            if sample.is_zero() {
                reader.fail_key(&section, "sample", "must be longer than 0s");
            } else if sample > duration {
                reader.fail_key(
                    &section,
                    "sample",
                    format!("\"{sample}\" is longer than the run, {duration}"),
                );
            } else if duration.as_nanos() / sample.as_nanos() > MOST_SAMPLES {
                let message = format!("\"{sample}\" makes more than {MOST_SAMPLES} samples of {duration}");
                reader.fail_key(&section, "sample", message);
            }
        }
    }
    if reader.errors.len() > errors_before {
        return None;
    }
    let trials = section.integer(if quick { "quick-trials" } else { "trials" })?;
    Some(RunPlan {
        duration: duration?,
        warm_up: warm_up?,
        sample: sample?,
        trials: u32::try_from(trials).ok()?,
        seed: u64::try_from(section.integer("seed")?).ok()?,
    })
}

fn schemes(reader: &mut Reader, file: &Section<'_>, topology: Option<&Topology>) -> Vec<SchemeConfig> {
    let layer = reader.table(file, "schemes");
    let names: Vec<&str> = scheme::REGISTRY.iter().map(|d| d.name).collect();
    let entries = layer.table.map_or(&[][..], |t| &t.entries);
    for entry in entries.iter().filter(|e| !names.contains(&e.key.as_str())) {
        let message = format!("unknown scheme `{}`", entry.key);
        reader.fail_with(&entry.place, "schemes", message, words::suggestion(&entry.key, &names));
    }
    let mut schemes = Vec::new();
    for def in scheme::REGISTRY.iter().copied() {
        let Some(entry) = entries.iter().find(|e| e.key == def.name) else { continue };
        let path = joined("schemes", def.name);
        if entry.item.table().is_none() {
            reader.fail(&entry.item.place, &path, format!("{} is not a table", entry.item));
            continue;
        }
        let header = format!("[{path}]");
        let layer = Layer::new(path, &entry.item);
        let section = reader.entry_section(&[SCHEME_ENABLED, def.keys], &layer, &header);
        let (Some(params), Some(topology)) = (section.params(def.keys), topology) else { continue };
        let enabled = section.bool("enabled") == Some(true);
        let checked = (def.check)(&params, &|name| topology.node(name));
        match checked.and_then(|()| if enabled { (def.fits)(&params, topology) } else { Ok(()) }) {
            Ok(()) if enabled => schemes.push(SchemeConfig { scheme: def, params }),
            Ok(()) => {}
            Err((key, message)) if section.has(key) => reader.fail_key(&section, key, message),
            Err((key, message)) => reader.fail(&section.place, &joined(&section.path, key), message),
        }
    }
    schemes
}

fn control(reader: &mut Reader, file: &Section<'_>) -> Option<ControlPlane> {
    let layer = reader.table(file, "control");
    let section = reader.section(&keys::CONTROL, &layer);
    let loss = section.float("loss");
    if loss.is_some_and(|loss| loss >= 1.0) {
        reader.fail_key(&section, "loss", "1 would lose every message; write a number from 0 to below 1");
    }
    Some(ControlPlane { delay: section.span("delay")?, loss: loss? })
}

fn measure(
    reader: &mut Reader,
    file: &Section<'_>,
    topology: Option<&Topology>,
    run: Option<&RunPlan>,
) -> Option<Measure> {
    let layer = reader.table(file, "measure");
    let section = reader.section(&keys::MEASURE, &layer);
    let queue = section.text("queue");
    if let (Some(queue), Some(topology)) = (&queue, topology)
        && topology.port(queue).is_none()
    {
        let ports: Vec<String> = (0..topology.links.len() as u32 * 2)
            .map(|p| topology.port_name(crate::id::PortId(p)))
            .filter(|name| !name.contains('.'))
            .collect();
        let path = section.key_path("queue").to_owned();
        let hint = words::suggestion(queue, &ports);
        reader.fail_with(section.place("queue"), &path, format!("no port is called \"{queue}\""), hint);
    }
    let long_interval = section.span("long-interval");
    if let (Some(long), Some(run)) = (long_interval, run) {
        let sample = run.sample.as_nanos().max(1);
        let written = section.item("long-interval").is_some();
        if long.is_zero() || !long.as_nanos().is_multiple_of(sample) {
            let default = if written { "" } else { ", the default," };
            let message =
                format!("\"{long}\"{default} is not a multiple of the sampling interval, {}", run.sample);
            reader.fail_key(&section, "long-interval", message);
        }
    }
    let windows = windows(reader, &section, run.map(|r| r.duration));
    Some(Measure {
        queue,
        record: match section.text("record")?.as_str() {
            "none" => RecordDetail::None,
            "flows" => RecordDetail::Flows,
            _ => RecordDetail::Groups,
        },
        windows,
        long_interval: long_interval?,
    })
}

fn windows(reader: &mut Reader, measure: &Section<'_>, duration: Option<Span>) -> Vec<Window> {
    let mut windows = Vec::new();
    let mut names = Vec::new();
    for layer in reader.tables(measure, "windows") {
        let section = reader.section(&keys::WINDOW, &layer);
        let name = reader.name(&section, "name");
        names.extend(section.name_entry("name"));
        let (Some(from), Some(to)) = (section.span("from"), section.span("to")) else { continue };
        if to <= from {
            reader.fail_key(&section, "to", format!("\"{to}\" is not after `from`, {from}"));
        } else if let Some(duration) = duration.filter(|d| to > *d) {
            reader.fail_key(&section, "to", format!("\"{to}\" is after the end of the run, {duration}"));
        }
        if let Some(name) = name {
            windows.push(Window { name, from: Time::ZERO + from, to: Time::ZERO + to });
        }
    }
    reader.unique(&names);
    windows
}

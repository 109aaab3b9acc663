//! Whatever scenario files can name has a scenario that uses it, a golden table and its documentation.
//!
//! Reference tables in `docs/`, the tables `golden/scheme-*.txt` and `golden/qdisc-*.txt` and the simulation next to the test of
//! the gateway are written by this test: run it with `BANDMASTER_BLESS=1` and read the diff.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bandmaster_core::id::FlowId;
use bandmaster_core::params::{Key, Kind, Limit, Params, Value};
use bandmaster_core::qdisc::{self, Discipline, Pkt, Qdisc, QdiscDef, Site, Verdict, fifo::Fifo};
use bandmaster_core::report::claims;
use bandmaster_core::report::metric::{self, Place};
use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::{self, Case, Files, Options, RecordDetail, Study, Transport};
use bandmaster_core::scheme::opentcp;
use bandmaster_core::scheme::opentcp::statistic::{STATISTICS, Statistic};
use bandmaster_core::scheme::{self, SchemeDef};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Bytes, Dimension, Rate};
use bandmaster_sim::{CONGESTION_CONTROLS, RunOptions};
use parquet::basic::Type;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Map, Value as Json};

// ---------------------------------------------------------------------------------------------------- the registries

#[test]
fn every_scheme_has_a_scenario_a_golden_table_and_a_page() {
    for def in scheme::REGISTRY {
        let used = uses(|case| case.scenario.schemes.iter().any(|config| config.scheme == *def));
        assert!(!used.is_empty(), "no file in scenarios/ switches the scheme {} on", def.name);
        let page = format!("docs/schemes/{}.md", def.name);
        let text = read(&page);
        let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, SCHEME_HEADINGS, "headings of {page}");
        in_step(&page, "keys", &key_table(def.keys));
        same_as_golden(&format!("golden/scheme-{}.txt", def.name), &scheme_table(def));
    }
}

#[test]
fn every_queue_discipline_has_a_scenario_a_golden_table_and_a_section() {
    for def in qdisc::registry::REGISTRY {
        let used = uses(|case| case.scenario.topology.links.iter().any(|link| link.queue.discipline == *def));
        assert!(!used.is_empty(), "no file in scenarios/ uses the queue discipline {}", def.name);
        has_section("docs/simulator.md", def.name);
        same_as_golden(&format!("golden/qdisc-{}.txt", def.name), &qdisc_table(def));
    }
}

/// An entry that is not in its registry would escape every other test.
#[test]
fn registries_hold_every_entry_in_the_source() {
    let registered = |folder: &str| -> BTreeSet<&str> {
        match folder {
            "crates/core/src/qdisc" => qdisc::registry::REGISTRY.iter().map(|def| def.name).collect(),
            "crates/core/src/scheme" => scheme::REGISTRY.iter().map(|def| def.name).collect(),
            _ => CONGESTION_CONTROLS.iter().map(|def| def.name).collect(),
        }
    };
    let folders = [
        ("crates/core/src/qdisc", ": QdiscDef = QdiscDef {"),
        ("crates/core/src/scheme", ": SchemeDef = SchemeDef {"),
        ("crates/sim/src/tcp/cc", ": CongestionControlDef = CongestionControlDef {"),
    ];
    for (folder, definition) in folders {
        let mut written = BTreeSet::new();
        for path in files_below(folder, "rs") {
            let text = read(&path);
            for rest in text.split(definition).skip(1) {
                let name = rest.split_once("name: \"").and_then(|(_, rest)| rest.split_once('"'));
                let (name, _) =
                    name.unwrap_or_else(|| panic!("{}: a definition without a name", path.display()));
                assert!(written.insert(name.to_owned()), "{folder} defines {name} twice");
            }
        }
        let written: BTreeSet<&str> = written.iter().map(String::as_str).collect();
        assert_eq!(written, registered(folder), "entries written in {folder}, and those in its REGISTRY");
    }
}

#[test]
fn every_congestion_control_has_a_scenario_a_golden_table_and_a_section() {
    for def in CONGESTION_CONTROLS {
        let used = uses(|case| {
            case.scenario.flows.iter().any(|group| {
                matches!(&group.transport, Transport::Tcp { settings, .. } if settings.congestion_control == def.name)
            })
        });
        assert!(!used.is_empty(), "no file in scenarios/ uses the congestion control {}", def.name);
        has_section("docs/simulator.md", def.name);
        let prefix = format!("tcp-{}-", def.name);
        let tables = files_below("golden", "txt");
        let is_own =
            |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&prefix));
        assert!(tables.iter().any(is_own), "no golden/{prefix}*.txt");
    }
}

#[test]
fn the_reference_of_scenario_files_is_complete() {
    in_step("docs/scenarios.md", "keys", &scenario_reference());
}

#[test]
fn the_reference_of_metrics_is_complete() {
    in_step("docs/simulator.md", "metrics", &metric_table(metric::SUMMARY));
    in_step("docs/simulator.md", "tracking", &metric_table(&[Place::Tracking]));
    in_step("docs/simulator.md", "gauge-metrics", &metric_table(&[Place::Gauge]));
    in_step("docs/simulator.md", "series", &metric_table(&[Place::Series, Place::FlowSeries]));
    in_step("docs/simulator.md", "gauges", &metric_table(&[Place::Shown]));
    in_step("docs/simulator.md", "distributions", &metric_table(&[Place::Distribution]));
}

/// Every edge of a claim of ours has its reason next to it, and the reader refuses one that cannot fail.
#[test]
fn the_list_of_claims_is_complete_and_gives_reasons() {
    let mut list = String::new();
    for path in files_below("scenarios", "toml") {
        let study = study(&path);
        if study.claims.is_empty() {
            continue;
        }
        let _ = writeln!(list, "## {}\n\n`{}`\n", study.title, path.display());
        list.push_str("| claim | what is computed | band | because |\n|---|---|---|---|\n");
        for claim in &study.claims {
            assert!(!claim.because.is_empty(), "{}: {} has no `because`", path.display(), claim.id);
            let (computed, band) = (claims::computed(claim), claims::band(claim.low, claim.high));
            let open = if claim.not_reproduced.is_some() { " (not reproduced)" } else { "" };
            let _ =
                writeln!(list, "| `{}`{open} | {computed} | {band} | {} |", claim.id, cell(&claim.because));
        }
        list.push('\n');
    }
    in_step("docs/claims.md", "claims", list.trim_end());
}

/// What a run writes is what the page says.
#[test]
fn the_reference_of_data_is_complete() {
    let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("data-{}", std::process::id()));
    let scenario = root().join("scenarios/examples/dumbbell.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bandmaster"));
    command.args(["run", "--quick", "--set", "run.duration=2s", "--set", "run.warm-up=1s", "--out"]);
    let ended = command.arg(&scratch).arg(scenario).output().expect("the binary runs");
    assert!(scratch.join("flows.parquet").exists(), "{ended:?}");
    for name in ["flows", "trials", "series"] {
        in_step("docs/data.md", name, &column_table(&scratch.join(format!("{name}.parquet"))));
    }
    fs::remove_dir_all(&scratch).expect("the scratch folder goes away");
}

/// The columns of a file that are no metrics, by its own metadata.
fn column_table(path: &Path) -> String {
    let file = SerializedFileReader::new(fs::File::open(path).expect("written")).expect("Parquet");
    let metadata = file.metadata().file_metadata();
    let about = |key: String| {
        let all = metadata.key_value_metadata().expect("metadata").iter();
        let found =
            all.clone().find(|entry| entry.key == key).unwrap_or_else(|| panic!("no {key} in {path:?}"));
        found.value.clone().unwrap_or_default()
    };
    let mut table = "| column | type | unit | meaning |\n|---|---|---|---|\n".to_owned();
    for column in metadata.schema_descr().columns() {
        let name = column.name();
        let (unit, description) = (about(format!("unit:{name}")), about(format!("description:{name}")));
        assert!(!description.is_empty(), "{name} in {path:?}");
        let is_metric = metric::summarised(name).is_some() || metric::find_at(metric::SERIES, name).is_some();
        if !path.ends_with("flows.parquet") && is_metric || name.starts_with("sweep.") {
            continue;
        }
        let kind = match (column.physical_type(), column.logical_type_ref()) {
            (Type::BYTE_ARRAY, _) => "text",
            (Type::BOOLEAN, _) => "bool",
            (Type::INT32, _) => "uint32",
            (Type::INT64, _) => "int64",
            (Type::FLOAT, _) => "float",
            _ => "double",
        };
        let null = if column.self_type().is_optional() { ", or null" } else { "" };
        let _ = writeln!(table, "| `{name}` | {kind}{null} | {unit} | {} |", cell(&description));
    }
    table
}

#[test]
fn the_reference_of_policies_is_complete() {
    let page = "docs/schemes/opentcp.md";
    let mut statistics = "| name | measured by | unit | meaning |\n|---|---|---|---|\n".to_owned();
    for Statistic { name, source, unit, doc, .. } in STATISTICS {
        let by = source.who();
        let _ = writeln!(statistics, "| `{name}` | {by} | {unit} | {} |", cell(doc));
    }
    in_step(page, "statistics", &statistics);
    let mut keys = String::new();
    for (header, own) in opentcp::file::reference() {
        let own: Vec<Key> = own.into_iter().copied().collect();
        let title = if header == "the file" { "Top of the file".to_owned() } else { code(header) };
        let _ = write!(keys, "{title}:\n\n{}\n", key_table(&own));
    }
    in_step(page, "policy-keys", &keys);
}

/// Every file that a page links to, and every heading that a link names, exists.
#[test]
fn links_between_pages_lead_somewhere() {
    let mut pages = files_below("docs", "md");
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(PathBuf::from));
    let mut broken = Vec::new();
    for page in &pages {
        let text = read(page);
        for target in links(&text) {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let folder = page.parent().unwrap_or(Path::new(""));
            let file = if path.is_empty() { page.clone() } else { folder.join(path) };
            let there = root().join(&file);
            let has_anchor = || anchors(&fs::read_to_string(&there).unwrap_or_default()).contains(anchor);
            if !there.exists() || !anchor.is_empty() && !has_anchor() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

// ----------------------------------------------------------------------------------------------------- golden tables

/// Trial 0 of the base point, for every variant in `scenarios/<scheme>/` that has the scheme on.
fn scheme_table(def: &SchemeDef) -> String {
    const COLUMNS: [(&str, usize); 6] =
        [("jain", 3), ("jain_normalised", 3), ("throughput", 2), ("queue", 1), ("drops", 0), ("rtos", 0)];
    /// Larger networks take too long for a test.
    const MOST_NODES: usize = 400;
    let mut table = format!("{:<14} {:<24}", "file", "variant");
    for (name, _) in COLUMNS {
        let _ = write!(table, " {name:>15}");
    }
    table.push('\n');
    for path in files_below(&format!("scenarios/{}", def.name), "toml") {
        let study = study(&path);
        for case in study.cases.iter().filter(|case| case.base) {
            let is_on = case.scenario.schemes.iter().any(|config| config.scheme == def);
            if !is_on || case.scenario.topology.nodes.len() > MOST_NODES {
                continue;
            }
            let mut scenario = case.scenario.clone();
            scenario.measure.record = RecordDetail::None;
            let record = bandmaster_sim::run(&scenario, 0, 0, &mut RunOptions::default())
                .unwrap_or_else(|e| panic!("{}, {}: {e}", path.display(), case.variant));
            let _ = write!(table, "{:<14} {:<24}", study.name, case.variant);
            for (name, places) in COLUMNS {
                let value = record.metric(name).unwrap_or_else(|| panic!("no metric {name}"));
                let _ = write!(table, " {value:>15.places$}");
            }
            table.push('\n');
        }
    }
    table
}

/// Packets of three flows meet a port that sends one each millisecond and may hold four.
fn qdisc_table(def: &QdiscDef) -> String {
    let mut params = Params::defaults(def.keys);
    if let Some(key) = def.keys.iter().find(|key| key.kind == Kind::Limit) {
        params.set(key.name, Value::Limit(Limit::Packets(4)));
    }
    for key in def.keys {
        match (key.name, key.kind) {
            ("rate", Kind::Quantity(Dimension::Rate)) => {
                params.set(key.name, Value::Rate(Rate::from_bits_per_sec(9_000_000)));
            }
            // Two packets: the script shows what the rate holds back.
            ("burst", Kind::Quantity(Dimension::Bytes)) => {
                params.set(key.name, Value::Bytes(Bytes::new(3_004)));
            }
            _ => {}
        }
    }
    // A packet of 1502 bytes a millisecond.
    let site = Site::new(Rate::from_bits_per_sec(12_016_000), Stream::new(1, 0, "golden"));
    let mut queue: Box<dyn Qdisc> = match (def.build)(&params, site) {
        Discipline::Fifo(rule) => Box::new(Fifo::new(rule)),
        Discipline::Ordered(qdisc) => qdisc,
    };
    let mut table = "time_us event   packet flow   len  waiting  bytes\n".to_owned();
    let (mut arrived, mut refused, mut left, mut dropped) = (0u32, 0u32, 0u32, Vec::new());
    for at in (0..12_000).step_by(250) {
        let now = Time::ZERO + Span::from_micros(at);
        let mut row = |event: &str, pkt: &Pkt, queue: &dyn Qdisc| {
            let backlog = queue.backlog();
            let _ = writeln!(
                table,
                "{at:>7} {event:<7} {:>6} {:>4} {:>5} {:>8} {:>6}",
                pkt.key, pkt.flow.0, pkt.len, backlog.packets, backlog.bytes
            );
        };
        if at % 1_000 == 0
            && let Some(pkt) = queue.dequeue(now, &mut dropped)
        {
            left += 1;
            row("send", &pkt, queue.as_ref());
        }
        // Flow 0 sends steadily, flow 1 twice as often for 4 ms, flow 2 one small packet in a while.
        let sends = [at % 1_000 == 0, at % 500 == 250 && at < 4_000, at % 3_000 == 750];
        for (flow, len) in (0..3).zip([1502, 1502, 66]).filter(|(flow, _)| sends[*flow as usize]) {
            // Voice: expedited forwarding.
            let dscp = if flow == 2 { 46 } else { 0 };
            let pkt = Pkt {
                key: arrived,
                len,
                flow: FlowId(flow),
                dscp,
                ect: flow == 0,
                ce: false,
                reverse: false,
            };
            arrived += 1;
            let event = match queue.enqueue(now, pkt, &mut dropped) {
                Verdict::Accept => "accept",
                Verdict::Mark => "mark",
                Verdict::Drop => {
                    refused += 1;
                    "drop"
                }
            };
            row(event, &pkt, queue.as_ref());
        }
        for pkt in dropped.drain(..) {
            refused += 1;
            row("expel", &pkt, queue.as_ref());
        }
    }
    let waiting = queue.backlog().packets;
    assert_eq!(arrived, refused + left + waiting, "{}: every packet has one fate", def.name);
    assert!(refused > 0 && waiting > 0, "{}: the script overloads the queue", def.name);
    table
}

fn same_as_golden(path: &str, ours: &str) {
    let file = root().join(path);
    if blessing() {
        replace(&file, ours);
    }
    let golden = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{path}: {e}; {BLESS}"));
    assert!(golden == ours, "{path} is\n{golden}\nbut the code gives\n{ours}\nWhen that is meant: {BLESS}");
}

/// What the test of the gateway on Linux is compared with, which does not know the simulator.
#[test]
fn the_steps_beside_the_gateway_are_of_this_simulator() {
    const FOLDER: &str = "crates/linux/tests/gateway";
    let study = scenario::parse("steps.toml", &read(format!("{FOLDER}/steps.toml")), &Options::default())
        .unwrap_or_else(|e| panic!("{e}"));
    let scenario = &study.cases[0].scenario;
    let estimates: Vec<Vec<f32>> = (0..scenario.run.trials)
        .map(|trial| {
            let record = bandmaster_sim::run(scenario, 0, trial, &mut RunOptions::default());
            let series = record.unwrap_or_else(|e| panic!("{e}")).series;
            let found = series.into_iter().find(|s| s.entity == "gw1" && s.metric == "estimate");
            found.expect("a series").values
        })
        .collect();
    let mut table = "# `bandmaster run steps.toml`, series.parquet: estimate of gw1, kbit/s, every 250 ms for 15 s after each step.\n\
                     # path in kbit/s, trial: estimates\n"
        .to_owned();
    // From 12 s on; the first value is that of 0.25 s.
    for (step, path) in [2000, 1380, 1070, 1690].into_iter().enumerate() {
        for (trial, values) in estimates.iter().enumerate() {
            let _ = write!(table, "{path} {trial}:");
            for value in &values[48 + 60 * step..][..60] {
                let _ = write!(table, " {:.0}", 1e3 * value);
            }
            table.push('\n');
        }
    }
    same_as_golden(&format!("{FOLDER}/simulated.txt"), &table);
}

// ---------------------------------------------------------------------------------------------------- reference tables

/// The headings of a scheme's page, in order.
const SCHEME_HEADINGS: [&str; 9] = [
    "Source",
    "Idea in five lines",
    "Symbols, units, fields",
    "Equations: number, function, test",
    "Defaults and their origin",
    "Deviations and why",
    "Limits",
    "How to run",
    "Validation",
];

fn key_table(keys: &[Key]) -> String {
    let mut table =
        "| key | value | default | meaning | origin of the default |\n|---|---|---|---|---|\n".to_owned();
    for key in keys {
        let default = match key.default {
            Some(default) => code(default),
            None if key.required => "needed".to_owned(),
            None => String::new(),
        };
        let allowed = cell(&key.kind.allowed());
        let _ = writeln!(
            table,
            "| `{}` | {allowed} | {default} | {} | {} |",
            key.name,
            cell(key.doc),
            cell(key.origin)
        );
    }
    table
}

fn metric_table(places: &[Place]) -> String {
    let mut table = "| name | unit | meaning |\n|---|---|---|\n".to_owned();
    for metric in metric::at(places) {
        let _ = writeln!(table, "| `{}` | {} | {} |", metric.name, metric.unit.word(), cell(metric.doc));
    }
    table
}

/// A section per table of a scenario file, from the JSON Schema, which is made of the key lists that read the files.
fn scenario_reference() -> String {
    let schema = scenario::whole_schema(scheme::REGISTRY);
    let mut reference = Reference { text: String::new(), shown: Vec::new() };
    reference.table("", "the file", &schema);
    reference.text
}

struct Reference {
    text: String,
    /// Tables so far, with their titles: many share their keys.
    shown: Vec<(Json, String)>,
}

impl Reference {
    fn table(&mut self, path: &str, title: &str, schema: &Json) {
        let empty = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&empty);
        let _ = write!(self.text, "### {title}\n\n");
        let about = schema["description"].as_str().unwrap_or_default();
        if !about.is_empty() {
            let _ = write!(self.text, "{about}.\n\n");
        }
        let own = &schema["properties"];
        if let Some((_, first)) = self.shown.iter().find(|(shown, _)| shown == own) {
            let _ = write!(self.text, "Keys as in {first}.\n\n");
            return;
        }
        self.shown.push((own.clone(), title.to_owned()));
        self.text.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
        for (name, property) in properties {
            let only = only_with(schema, name);
            let about = property["description"].as_str().unwrap_or_default();
            let (when, needed) = match &only {
                Some((choices, needed)) => (format!("With {choices}: "), *needed),
                None => (String::new(), is_in(&schema["required"], name)),
            };
            let default = match &property["default"] {
                Json::Null if needed => "needed".to_owned(),
                Json::Null => String::new(),
                Json::String(text) => code(text),
                other => code(&other.to_string()),
            };
            let _ = writeln!(
                self.text,
                "| `{name}` | {} | {default} | {when}{} |",
                allowed(property),
                cell(about)
            );
        }
        self.text.push('\n');
        for (name, property) in properties {
            let inner_path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let (inner, brackets) = match &property["items"] {
                Json::Object(_) => (&property["items"], ("[[", "]]")),
                _ => (property, ("[", "]")),
            };
            if inner["properties"].is_object() {
                if path.is_empty() && name == "schemes" {
                    for (scheme, table) in inner["properties"].as_object().unwrap_or(&empty) {
                        self.table(&format!("schemes.{scheme}"), &format!("`[schemes.{scheme}]`"), table);
                    }
                    continue;
                }
                self.table(&inner_path, &format!("`{}{inner_path}{}`", brackets.0, brackets.1), inner);
            }
        }
        let queues = &properties.get("queue").map_or(&Json::Null, |queue| &queue["anyOf"][1]["oneOf"]);
        for queue in queues.as_array().into_iter().flatten() {
            let name = queue["properties"]["discipline"]["const"].as_str().unwrap_or_default();
            let title = format!("`queue = {{ discipline = \"{name}\" }}`");
            if !self.shown.iter().any(|(_, shown)| *shown == title) {
                self.table(&inner_queue(path), &title, queue);
            }
        }
    }
}

fn inner_queue(path: &str) -> String {
    format!("{path}.queue")
}

/// The choices of the table's selector that have the key, and whether they need it; none when all have it.
fn only_with(schema: &Json, key: &str) -> Option<(String, bool)> {
    let rules = schema["allOf"].as_array()?;
    let choice = |rule: &Json| -> Option<(String, String)> {
        let (selector, wanted) = rule["if"]["properties"].as_object()?.iter().next()?;
        Some((selector.clone(), wanted["const"].as_str()?.to_owned()))
    };
    let knows = |rule: &&Json| rule["then"]["properties"][key] != Json::Bool(false);
    let with: Vec<&Json> = rules.iter().filter(knows).collect();
    if with.len() == rules.len() {
        return None;
    }
    let selector = choice(with.first()?)?.0;
    let words: Vec<String> = with.iter().filter_map(|rule| Some(format!("`{}`", choice(rule)?.1))).collect();
    let needed = with.iter().all(|rule| is_in(&rule["then"]["required"], key));
    Some((format!("`{selector}` {}", words.join(", ")), needed))
}

fn is_in(list: &Json, word: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|entry| entry == word))
}

/// What may be written, in words; units are explained at the top of the page.
fn allowed(property: &Json) -> String {
    if let Some(pattern) = property["pattern"].as_str() {
        let word =
            [("uniform", "time or draw"), ("unlimited", "limit"), ("(pkt)", "packets"), ("mbit", "rate")]
                .into_iter()
                .chain([("(ns|", "time"), ("(B|", "size")])
                .find(|(part, _)| pattern.contains(part));
        return word.unwrap_or_else(|| panic!("no word for values like {pattern}")).1.to_owned();
    }
    if let Some(words) = property["enum"].as_array() {
        return words.iter().filter_map(Json::as_str).map(code).collect::<Vec<_>>().join(", ");
    }
    if let Some(only) = property.get("const") {
        return code(only.as_str().unwrap_or(&only.to_string()));
    }
    if let Some(either) = property["anyOf"].as_array() {
        let of_queue = either.iter().any(|e| e["oneOf"].is_array());
        return if of_queue { "limit or table" } else { "text or list of texts" }.to_owned();
    }
    let bound = |name: &str| property[name].as_f64();
    match property["type"].as_str() {
        Some("string") => "text".to_owned(),
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("object") => "table".to_owned(),
        Some("array") => match property["items"]["type"].as_str() {
            Some("object") => "list of tables",
            Some("number" | "integer") => "list of numbers",
            _ => "list of values",
        }
        .to_owned(),
        Some(kind @ ("integer" | "number")) => {
            let what = if kind == "integer" { "whole number" } else { "number" };
            match (bound("minimum"), bound("maximum")) {
                (Some(low), Some(high)) if low == -1e9 && high == 1e9 => what.to_owned(),
                (Some(low), Some(high)) => format!("{what}, {low} to {high}"),
                (Some(low), None) => format!("{what}, at least {low}"),
                _ => what.to_owned(),
            }
        }
        _ => "any value".to_owned(),
    }
}

fn code(text: &str) -> String {
    if text.is_empty() { "empty".to_owned() } else { format!("`{text}`") }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

/// Compares the part of a page between two marks with `ours`, or writes it.
fn in_step(page: &str, part: &str, ours: &str) {
    let (begin, end) = (format!("<!-- generated: {part} -->\n"), format!("<!-- end: {part} -->"));
    let text = read(page);
    let from = text.find(&begin).unwrap_or_else(|| panic!("{page} has no mark {begin}")) + begin.len();
    let to = text[from..].find(&end).unwrap_or_else(|| panic!("{page} has no mark {end}")) + from;
    let ours = format!("\n{}\n\n", ours.trim_end());
    if blessing() {
        let whole = format!("{}{ours}{}", &text[..from], &text[to..]);
        replace(&root().join(page), &whole);
        return;
    }
    let differs = text[from..to].lines().zip(ours.lines()).find(|(have, want)| have != want);
    assert!(text[from..to] == ours, "{page}, part {part}, differs from the code: {differs:#?}; {BLESS}");
}

fn has_section(page: &str, name: &str) {
    let heading = format!("### `{name}`");
    assert!(read(page).lines().any(|line| line.starts_with(&heading)), "{page} has no section {heading}");
}

// --------------------------------------------------------------------------------------------------------- the tree

const BLESS: &str = "run `BANDMASTER_BLESS=1 cargo test -p bandmaster --test registry` and read the diff";

fn blessing() -> bool {
    std::env::var_os("BANDMASTER_BLESS").is_some_and(|value| value == "1")
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Writes a file in one step: other tests may be reading it.
fn replace(file: &Path, text: &str) {
    let draft = file.with_extension("new");
    let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, file));
    written.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

/// Files with this ending below a folder of the tree, in order of their names.
fn files_below(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(root().join(&folder)).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries {
            let entry = entry.expect("a folder entry");
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|have| have == ending) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn study(path: &Path) -> Study {
    let name = path.display().to_string();
    let folder = Folder(root().join(path.parent().unwrap_or(Path::new(""))));
    let options = Options { files: Some(&folder), ..Options::default() };
    scenario::parse(&name, &read(path), &options).unwrap_or_else(|e| panic!("{e}"))
}

/// The folder of a scenario file.
#[derive(Debug)]
struct Folder(PathBuf);

impl Files for Folder {
    fn read(&self, name: &str) -> Result<String, String> {
        fs::read_to_string(self.0.join(name)).map_err(|e| e.to_string())
    }
}

/// Scenario files with a case that fits.
fn uses(fits: impl Fn(&Case) -> bool) -> Vec<PathBuf> {
    let mut files = files_below("scenarios", "toml");
    files.retain(|path| study(path).cases.iter().any(&fits));
    files
}

/// Targets of the page's Markdown links and images into the tree.
fn links(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.starts_with("```");
        if in_code {
            continue;
        }
        let targets =
            line.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
        found.extend(targets.filter(|target| !target.contains("://")).map(ToOwned::to_owned));
    }
    found
}

/// Anchors of the page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading =
        |line: &str| line.starts_with('#').then(|| line.trim_start_matches('#').trim().to_lowercase());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let anchor = |title: String| title.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect();
    text.lines().filter_map(heading).map(anchor).collect()
}

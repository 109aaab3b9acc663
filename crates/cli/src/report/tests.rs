//! A small study with made-up results, for the tests of every room of the report, and tests of the whole.

use std::fs;
use std::path::{Path, PathBuf};

use bandmaster_core::report::Series;
use bandmaster_core::scenario::{
    Against, Case, Claim, ClaimAt, ControlPlane, Faults, Figure, FigureContent, FlowRows, Measure,
    RecordDetail, ReferenceCurve, Relation, RunPlan, Scenario,
};
use bandmaster_core::time::Span;
use bandmaster_core::topology::{Node, NodeKind, Topology};
use bandmaster_core::units::Bytes;

use super::*;

/// A folder that goes away with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bandmaster-report-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Three variants, two of them swept over N = 4 (the base), 8, 16; two trials; claims of every outcome.
pub(crate) fn study() -> Study {
    let variant = |name: &str, title: &str| Variant {
        name: name.to_owned(),
        title: title.to_owned(),
        paper: Vec::new(),
    };
    let case = |variant: &str, value: Option<&str>, base: bool| Case {
        variant: variant.to_owned(),
        points: value.map(|value| ("n".to_owned(), value.to_owned())).into_iter().collect(),
        base,
        scenario: scenario(),
    };
    let mut cases = Vec::new();
    for name in ["tcp", "bas"] {
        cases.extend(["4", "8", "16"].map(|value| case(name, Some(value), value == "4")));
    }
    cases.push(case("ideal", None, true));
    let variants = || vec!["tcp".to_owned(), "bas".to_owned(), "ideal".to_owned()];
    let figure = |id: &str, title: &str, content: FigureContent| Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        source: "Fig. 6".to_owned(),
        content,
        variants: variants(),
        references: Vec::new(),
    };
    let mut jain = figure(
        "jain",
        "Fairness against the number of clients",
        FigureContent::Sweep { sweep: "n".to_owned(), y: "jain_normalised".to_owned(), x: None, log_x: true },
    );
    jain.references.push(ReferenceCurve {
        label: "ns-3 3.37, conventional".to_owned(),
        x: vec![4.0, 16.0],
        y: vec![0.68, 0.77],
        low: vec![0.6, 0.7],
        high: vec![0.75, 0.8],
    });
    let series = FigureContent::Series {
        y: vec!["throughput".to_owned()],
        entities: vec!["all".to_owned(), "near".to_owned()],
        sweep: None,
        at: None,
        beside: None,
        trial: None,
        average: None,
    };
    let queue = FigureContent::Series {
        y: vec!["queue".to_owned()],
        entities: Vec::new(),
        sweep: Some("n".to_owned()),
        at: None,
        beside: None,
        trial: None,
        average: None,
    };
    let mut queue = figure("queue", "Queue of R1", queue);
    queue.variants = vec!["bas".to_owned()];
    Study {
        name: "fair".to_owned(),
        title: "Fair shares".to_owned(),
        description: "A made-up study.\n\nIts second paragraph.".to_owned(),
        variants: vec![variant("tcp", "Conventional TCP"), variant("bas", "BAS"), variant("ideal", "Ideal")],
        sweeps: vec![Sweep {
            name: "n".to_owned(),
            title: "Clients N".to_owned(),
            key: "groups.clients.count".to_owned(),
            values: ["4", "8", "16"].map(str::to_owned).to_vec(),
            grid: Vec::new(),
            variants: vec!["tcp".to_owned(), "bas".to_owned()],
        }],
        claims: claims(),
        figures: vec![jain, figure("series", "Throughput over time", series), queue],
        cases,
        quick: false,
    }
}

fn claims() -> Vec<Claim> {
    let claim = |id: &str, text: &str, low: f64, high: f64| Claim {
        because: "Jain’s index is at most 1".to_owned(),
        id: id.to_owned(),
        text: text.to_owned(),
        metric: "jain_normalised".to_owned(),
        variant: "bas".to_owned(),
        against: None,
        at: ClaimAt::Every("n".to_owned()),
        low: Some(low),
        high: Some(high),
        paper: "0.99".to_owned(),
        source: "Fig. 6".to_owned(),
        not_reproduced: None,
    };
    let against =
        Against { relation: Relation::Minus, variant: Some("tcp".to_owned()), point: None, metric: None };
    vec![
        claim("fair", "BAS is nearly fair for every N", 0.95, 1.0),
        Claim {
            against: Some(against),
            ..claim("fairer", "BAS is much fairer than conventional TCP", 0.3, 0.5)
        },
        Claim {
            not_reproduced: Some("the paper’s topology figure is lost".to_owned()),
            ..claim("fairest", "BAS is perfectly fair", 1.0, 1.0)
        },
        Claim { metric: "fct_mean".to_owned(), ..claim("fast", "Flows complete within a second", 0.0, 1.0) },
        Claim { high: None, ..claim("nearly", "BAS is as fair as can be measured", 0.98, 1.0) },
        Claim {
            not_reproduced: Some("nobody knows".to_owned()),
            ..claim("known", "BAS is fairer than chance", 0.9, 1.0)
        },
    ]
}

fn scenario() -> Scenario {
    let host = |name: &str| Node { name: name.to_owned(), kind: NodeKind::Host };
    Scenario {
        name: "fair".to_owned(),
        run: RunPlan {
            duration: Span::from_secs(20),
            warm_up: Span::from_secs(5),
            sample: Span::from_millis(100),
            trials: 2,
            seed: 1,
            partitions: 1,
        },
        topology: Topology {
            nodes: vec![host("server"), host("client")],
            links: Vec::new(),
            groups: Vec::new(),
            frame_overhead: Bytes::new(2),
            host_delay: 1.0,
            rate_tolerance: 0.0,
        },
        flows: Vec::new(),
        schemes: Vec::new(),
        control: ControlPlane { delay: Span::ZERO, loss: 0.0 },
        faults: Faults::default(),
        measure: Measure {
            queue: None,
            record: RecordDetail::Groups,
            windows: Vec::new(),
            long_interval: Span::from_secs(1),
            gauges: Vec::new(),
            tracking: None,
            distributions: false,
            arrivals: false,
            flow_table: FlowRows::None,
            percentiles: false,
            ports: Vec::new(),
        },
    }
}

/// Made-up records of every trial of [`study`].
pub(crate) fn results(study: &Study) -> StudyResults<'_> {
    let mut records = Vec::new();
    for (case, content) in study.cases.iter().enumerate() {
        for trial in 0..content.scenario.run.trials {
            records.push(record(case, trial, content));
        }
    }
    let provenance =
        Provenance { world: "simulate", version: VERSION, commit: None, digest: "abc".to_owned(), seed: 1 };
    StudyResults { study, records, provenance }
}

fn record(case: usize, trial: u32, content: &Case) -> RunRecord {
    let n: f64 = content.points.first().map_or(4.0, |(_, value)| value.parse().unwrap());
    let wobble = f64::from(trial) * 0.01;
    let (jain, throughput, queue, drops) = match content.variant.as_str() {
        "tcp" => (0.80 - n / 200.0 - wobble, 96.4, 60.0 + 4.0 * n, 40.0 * n),
        "bas" => (0.99 - n / 1000.0 - wobble / 5.0, 95.0 + wobble, 10.0 + n, 0.0),
        _ => (1.0, 96.4, 0.0, 0.0),
    };
    let metrics = [
        ("jain", jain - 0.05),
        ("jain_normalised", jain),
        ("throughput", throughput),
        ("queue", queue + 100.0 * wobble),
        ("queue_max", 200.0),
        ("drops", drops + 1000.0 * wobble),
        ("rtos", drops / 10.0),
        ("fct_mean", f64::NAN),
        ("late.throughput", throughput - 1.0),
    ];
    let wave = |level: f64, depth: f64| -> Vec<f32> {
        let value =
            |i: u32| level * (1.0 + depth * (f64::from(i) / (6.0 + n) + f64::from(case as u32)).sin());
        (0..200).map(|i| value(i) as f32).collect()
    };
    let mut fairness = wave(jain, 0.02);
    fairness[0] = f32::NAN;
    let series = |entity: &str, metric: &'static str, values: Vec<f32>| Series {
        entity: entity.to_owned(),
        metric,
        values,
    };
    RunRecord {
        case,
        trial,
        metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        series: vec![
            series("all", "throughput", wave(throughput, 0.01)),
            series("all", "jain", fairness),
            series("near", "throughput", wave(throughput / 2.0, 0.15)),
            series("r1->server", "queue", wave(queue, 0.4)),
        ],
        distributions: Vec::new(),
        sample: Span::from_millis(100),
        work: Work { events: 1000, packet_hops: 600 },
    }
}

#[test]
fn a_report_is_complete_and_the_same_for_any_order_of_records() {
    let study = study();
    let manifest = Manifest { command: vec!["run".to_owned()] };
    let mut contents: Vec<Vec<(String, Vec<u8>)>> = Vec::new();
    for reversed in [false, true] {
        let scratch = Scratch::new(if reversed { "whole-reversed" } else { "whole" });
        let mut results = [results(&study)];
        if reversed {
            results[0].records.reverse();
        }
        let folder = OutputFolder::create(Some(scratch.path()), "fair", false).unwrap();
        let summary = ReportSummary::new("Title", &results);
        write_all(&folder, &summary, &results, None, &manifest).unwrap();
        folder.finish().unwrap();
        assert!(summary.complete && summary.failures() > 0);
        assert_eq!(summary.work, Work { events: 14_000, packet_hops: 8400 });
        let names = [
            "report.html",
            "trials.parquet",
            "series.parquet",
            "summary.json",
            "manifest.json",
            "figures/jain.svg",
            "figures/series.svg",
            "figures/queue.svg",
        ];
        contents
            .push(names.map(|name| (name.to_owned(), fs::read(scratch.path().join(name)).unwrap())).to_vec());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 6);
    }
    assert_eq!(contents[0], contents[1]);
}

#[test]
fn summary_json_has_rows_and_claims_at_the_top() {
    let study = study();
    let summary = ReportSummary::new("Title", &[results(&study), results(&study)]);
    let json: serde_json::Value = serde_json::from_str(&summary.to_json()).unwrap();
    assert_eq!(json["version"], 3);
    assert_eq!(json["rows"].as_array().unwrap().len(), 14);
    assert_eq!(json["rows"][0]["study"], "fair");
    assert_eq!(json["rows"][7]["study"], "fair-2");
    assert_eq!(json["rows"][1]["points"]["n"], "8");
    assert_eq!(json["rows"][0]["metrics"]["throughput"]["mean"], 96.4);
    let claim = &json["claims"][0];
    assert_eq!((&claim["id"], &claim["ok"]), (&"fair.fair".into(), &true.into()));
    assert_eq!((&claim["low"], &claim["high"]), (&0.95.into(), &1.0.into()));
    assert_eq!(
        (&claim["paper"], &claim["source"], &claim["study"]),
        (&"0.99".into(), &"Fig. 6".into(), &"fair".into())
    );
    assert_eq!(json["claims"][9]["status"], "missing");
    assert_eq!(json["work"]["packet_hops"], 16_800);
}

#[test]
fn ids_are_prefixed_only_where_they_would_be_the_same() {
    let pair = |study: &str, id: &str| (study.to_owned(), id.to_owned());
    let ids = unique_ids(&[pair("a", "x"), pair("a", "y"), pair("b", "x")]);
    assert_eq!(ids, ["a.x", "y", "b.x"]);
}

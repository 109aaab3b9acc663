//! Every scenario file of the repository is valid, whatever the options, and reads the same each time.

use std::fs;
use std::path::{Path, PathBuf};

use bandmaster_core::params::Limit;
use bandmaster_core::qdisc;
use bandmaster_core::rng::SpanDraw;
use bandmaster_core::scenario::{Files, Options, Study, TcpSettings, Transport, explain, parse};
use bandmaster_core::time::Span;

fn files() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the scenarios folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "toml") {
                let text = fs::read_to_string(&path).expect("a text");
                found.push((path, text));
            }
        }
    }
    found.sort();
    found
}

/// The folder of a scenario file.
#[derive(Debug)]
struct Folder<'a>(&'a Path);

impl Files for Folder<'_> {
    fn read(&self, name: &str) -> Result<String, String> {
        fs::read_to_string(self.0.join(name)).map_err(|e| e.to_string())
    }
}

fn folder(path: &Path) -> Folder<'_> {
    Folder(path.parent().expect("a folder"))
}

fn read(path: &Path, text: &str, options: &Options) -> Study {
    let options = Options { files: Some(&folder(path)), ..options.clone() };
    parse(&path.display().to_string(), text, &options).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn all_are_valid_in_full_and_quick() {
    let files = files();
    assert!(files.len() >= 6, "only {} files", files.len());
    for (path, text) in &files {
        let full = read(path, text, &Options::default());
        let quick = read(path, text, &Options { quick: true, ..Options::default() });
        assert!(quick.cases.len() <= full.cases.len(), "{}", path.display());
        assert!(quick.claims.len() <= full.claims.len(), "{}", path.display());
    }
}

#[test]
fn examples_are_named_after_their_file_and_small() {
    for (path, text) in
        files().iter().filter(|(path, _)| path.parent().is_some_and(|p| p.ends_with("examples")))
    {
        let study = read(path, text, &Options::default());
        assert!(!study.claims.is_empty(), "{} claims nothing", path.display());
        assert_eq!(Some(study.name.as_str()), path.file_stem().and_then(|s| s.to_str()));
        for case in &study.cases {
            assert!(case.scenario.run.duration.as_secs_f64() <= 5.0, "{}", path.display());
        }
    }
}

#[test]
fn reading_twice_gives_the_same() {
    for (path, text) in &files() {
        let files = folder(path);
        let options = Options { files: Some(&files), ..Options::default() };
        let text_of = |study: &Study| serde_json::to_string(study).expect("serialises");
        assert_eq!(text_of(&read(path, text, &options)), text_of(&read(path, text, &options)));
        assert_eq!(explain("f", text, &options), explain("f", text, &options));
    }
}

/// A grid has a case for every combination of its keys' values, the last key's first.
#[test]
fn grids_are_whole() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/figures/grid.toml");
    let text = fs::read_to_string(&path).expect("a text");
    let study = read(&path, &text, &Options::default());
    let [sweep] = study.sweeps.as_slice() else { panic!("{:?}", study.sweeps) };
    let names: Vec<&str> = sweep.axes().iter().map(|(name, _)| *name).collect();
    assert_eq!((names, sweep.values.len()), (vec!["delay", "queue"], 16));
    assert_eq!(sweep.values[1], "delay=5ms, queue=25pkt");
    assert_eq!(sweep.coordinates(&sweep.values[6]), ["10ms", "50pkt"]);
    for case in &study.cases {
        let [(name, point)] = case.points.as_slice() else { panic!("{:?}", case.points) };
        let [delay, queue] = sweep.coordinates(point)[..] else { panic!("{point}") };
        assert_eq!(name, "buffer");
        let links = &case.scenario.topology.links;
        let bottleneck = links.iter().find(|link| link.rate.to_string() == "20mbit").expect("a bottleneck");
        let millis: u64 = delay.trim_end_matches("ms").parse().expect("a delay");
        assert_eq!(bottleneck.delay, SpanDraw::fixed(Span::from_millis(millis)));
        let packets = queue.trim_end_matches("pkt").parse().expect("a queue");
        assert_eq!(bottleneck.queue, qdisc::fifo::config(Limit::Packets(packets)));
    }
    let quick = read(&path, &text, &Options { quick: true, ..Options::default() });
    let points = ["10ms, queue=25pkt", "10ms, queue=100pkt", "40ms, queue=25pkt", "40ms, queue=100pkt"];
    assert_eq!(quick.sweeps[0].values, points.map(|point| format!("delay={point}")));
}

/// Every case has its own scenario, each variant has one base, and every point of a sweep is in exactly one case
/// for every variant of the sweep.
#[test]
fn cases_cover_every_point_once() {
    for (path, text) in &files() {
        let study = read(path, text, &Options::default());
        for variant in &study.variants {
            let cases: Vec<_> = study.cases.iter().filter(|c| c.variant == variant.name).collect();
            assert_eq!(cases.iter().filter(|c| c.base).count(), 1, "{}", path.display());
            for (i, case) in cases.iter().enumerate() {
                assert!(cases[..i].iter().all(|c| c.scenario != case.scenario), "{}", path.display());
                assert!(case.base || !case.points.is_empty());
            }
            for sweep in &study.sweeps {
                for value in &sweep.values {
                    let point = (sweep.name.clone(), value.clone());
                    let holding = cases.iter().filter(|c| c.points.contains(&point)).count();
                    let expected = usize::from(sweep.variants.contains(&variant.name));
                    assert_eq!(holding, expected, "{} {point:?}", path.display());
                }
            }
        }
    }
}

/// Queues that mark between leaves are on the path of some of the flows, if not of two hosts of one leaf.
#[test]
fn dctcp_is_taken_where_some_path_marks() {
    let text = |fabric: &str| {
        format!(
            "version = 1\nname = \"t\"\n[run]\nduration = \"1s\"\n[network]\nbuilder = \"leaf-spine\"\nleaves = 2\nspines = 1\n\
             size = 2\n[network.link]\nrate = \"1gbit\"\nqueue = \"100pkt\"\n[network.fabric]\nrate = \"1gbit\"\nqueue = {fabric}\n\
             [tcp]\ncongestion-control = \"dctcp\"\necn = true\n[[flows]]\nname = \"f\"\nfrom = \"hosts\"\nto = \"hosts\"\npairing = \"all-to-all\"\n"
        )
    };
    let read = |fabric: &str| parse("t.toml", &text(fabric), &Options::default());
    let marking = "{ discipline = \"fifo\", limit = \"100pkt\", ecn-threshold = \"20pkt\" }";
    read(marking).unwrap_or_else(|e| panic!("{e}"));
    let refused = read("\"100pkt\"").expect_err("no queue marks").to_string();
    assert!(refused.contains("meets no queue that marks"), "{refused}");
}

/// What the first flows of a scenario do.
fn tcp(study: &Study) -> TcpSettings {
    let mut transports = study.cases[0].scenario.flows.iter().map(|group| &group.transport);
    let settings = transports.find_map(|transport| match transport {
        Transport::Tcp { settings, .. } => Some(settings.clone()),
        Transport::Udp { .. } => None,
    });
    settings.expect("TCP flows")
}

/// The preset `ns-3` has the rules with which ns-3 is compared. Segments, buffers, timers and timestamps are those that the
/// programs of the comparisons set in ns-3; BAS's has ns-3's own timers and timestamps.
#[test]
fn the_preset_ns_3_is_what_was_compared_with_ns_3() {
    let text = "version = 1\nname = \"x\"\ninclude = \"ns-3\"\n[run]\nduration = \"1s\"\n[network]\nbuilder = \"star\"\nsize = 2\n\
                access = { rate = \"1mbit\" }\n[[flows]]\nname = \"a\"\nfrom = \"hosts.0\"\nto = \"hosts.1\"\n";
    let preset = tcp(&read(Path::new("x/x.toml"), text, &Options::default()));
    let mut compared = 0;
    for (path, text) in files() {
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !name.starts_with("ns3-") {
            continue;
        }
        compared += 1;
        let own = tcp(&read(&path, &text, &Options::default()));
        let mut expected = TcpSettings { mss: own.mss, receive_buffer: own.receive_buffer, ..preset.clone() };
        if name != "ns3-bas" {
            expected = TcpSettings {
                timestamps: own.timestamps,
                delayed_ack_timeout: own.delayed_ack_timeout,
                initial_rto: own.initial_rto,
                min_rto: own.min_rto,
                ..expected
            };
        }
        // It is about marks.
        if !own.ecn {
            expected.mark_reduction = own.mark_reduction;
        }
        assert_eq!(own, expected, "{name}");
    }
    assert_eq!(compared, 4);
}

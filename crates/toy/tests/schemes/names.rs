//! Both runtimes write the same columns.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use bandmaster_core::scenario::{Case, Files, Options, Scenario, Window, parse};
use bandmaster_core::time::{Span, Time};

use super::lab::{alone, emulate};
use super::simulate;

/// Fewer compared would mean that the test looks for scenarios where there are none.
const LEAST: usize = 80;
const LABS: usize = 6;

#[derive(Debug)]
struct Folder(PathBuf);

impl Files for Folder {
    fn read(&self, name: &str) -> Result<String, String> {
        fs::read_to_string(self.0.join(name)).map_err(|e| e.to_string())
    }
}

/// The scenario files that ship.
fn shipped() -> Vec<PathBuf> {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let folders = inside(&root).into_iter().filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| inside(&folder));
    files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect()
}

/// What of the shipped scenarios the lab accepts, cut short; and how many cases it does not.
fn short() -> (Vec<(String, Scenario)>, usize) {
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for path in shipped() {
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let files = Folder(path.parent().expect("a folder").to_owned());
        let options = Options { files: Some(&files), quick: true, ..Options::default() };
        let study = parse(&path.display().to_string(), &text, &options).unwrap_or_else(|e| panic!("{e}"));
        for Case { variant, mut scenario, .. } in study.cases.into_iter().filter(|case| case.base) {
            scenario.run.duration = Span::from_millis(300);
            scenario.run.warm_up = Span::from_millis(100);
            scenario.run.sample = Span::from_millis(50);
            scenario.measure.long_interval = Span::from_millis(100);
            for Window { from, to, .. } in &mut scenario.measure.windows {
                (*from, *to) = (Time::from_nanos(100_000_000), Time::from_nanos(300_000_000));
            }
            if bandmaster_linux::check(&scenario, LABS).is_err() {
                refused += 1;
            } else {
                accepted.push((format!("{}, variant {variant}", path.display()), scenario));
            }
        }
    }
    (accepted, refused)
}

#[test]
fn the_lab_and_the_simulator_name_the_same_metrics_in_the_same_order() {
    let Some(_alone) = alone("the_lab_and_the_simulator_name_the_same_metrics_in_the_same_order") else {
        return;
    };
    let (accepted, refused) = short();
    let compare = |(what, scenario): &(String, Scenario)| {
        let names = [simulate(scenario), emulate(scenario)]
            .map(|record| record.metrics.into_iter().map(|(name, _)| name).collect::<Vec<_>>());
        assert_eq!(names[0], names[1], "{what}");
        assert!(names[0].len() > 20, "{what}: {names:?}");
    };
    // The kernel takes its time over namespaces.
    thread::scope(|scope| {
        for part in accepted.chunks(accepted.len().div_ceil(LABS).max(1)) {
            scope.spawn(move || part.iter().for_each(compare));
        }
    });
    let compared = accepted.len();
    println!("{compared} compared, {refused} not accepted");
    assert!(compared >= LEAST, "only {compared} scenarios compared");
}

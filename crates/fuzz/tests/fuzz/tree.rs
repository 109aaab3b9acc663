//! Files of the tree, which inputs are made from.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bandmaster_core::scenario::Files;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files in these folders whose names end so, by path.
pub(crate) fn files(folders: &[&str], end: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for folder in folders {
        let folder = root().join(folder);
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|own| own == end) {
                let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                found.push((path, bytes));
            }
        }
    }
    assert!(!found.is_empty(), "no {end} in {folders:?}");
    found.sort();
    found
}

/// The folders of scenarios.
pub(crate) const SCENARIOS: [&str; 10] = [
    "scenarios/bas",
    "scenarios/bench",
    "scenarios/er2bc",
    "scenarios/examples",
    "scenarios/fbqm",
    "scenarios/links",
    "scenarios/opentcp",
    "scenarios/published",
    "scenarios/qcbf",
    "scenarios/validation",
];

/// Files by their last name, whatever the folder.
#[derive(Debug)]
pub(crate) struct Shelf(BTreeMap<String, String>);

impl Shelf {
    pub(crate) fn new() -> Self {
        let mut all = BTreeMap::new();
        for (folder, end) in [
            ("scenarios/links", "trace"),
            ("policies", "toml"),
            ("policies/own", "toml"),
            ("sizes", "cdf"),
            ("scenarios/examples", "graphml"),
            ("scenarios/examples", "csv"),
        ] {
            for (path, bytes) in files(&[folder], end) {
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                all.insert(name, String::from_utf8(bytes).expect("text"));
            }
        }
        for (name, text) in [
            ("x.trace", "1\n"),
            ("y.trace", "4294967295\n"),
            ("x.cdf", "1 1\n"),
            ("y.cdf", "0 0\n18446744073709551615 1\n"),
        ] {
            all.insert(name.to_owned(), text.to_owned());
        }
        Self(all)
    }
}

impl Files for Shelf {
    fn read(&self, name: &str) -> Result<String, String> {
        let last = name.rsplit('/').next().unwrap_or(name);
        self.0.get(last).cloned().ok_or_else(|| "no such file".to_owned())
    }
}

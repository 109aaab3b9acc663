//! What a scenario file may name: schemes, and files, of which traces and maps are read once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Files, Options};
use crate::capacity::Trace;
use crate::file::{self, Section};
use crate::scheme::SchemeDef;
use crate::sizes::SizeDistribution;
use crate::topology::graphml::Map;

/// Reads scenario files.
pub(super) type Reader<'a> = file::Reader<'a, &'a Sources<'a>>;

/// What the files of a study may name.
pub(super) struct Sources<'a> {
    files: Option<&'a dyn Files>,
    schemes: &'a [&'static SchemeDef],
    controls: &'a [(&'static str, &'static str)],
    /// The traces so far.
    traces: RefCell<BTreeMap<String, Result<Trace, String>>>,
    /// The maps so far.
    maps: RefCell<BTreeMap<String, Result<Rc<Map>, String>>>,
    /// Hosts of the networks so far.
    pub(super) hosts: Cell<u64>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(options: &Options<'a>) -> Self {
        Self {
            files: options.files,
            schemes: options.schemes,
            controls: options.controls,
            traces: RefCell::default(),
            maps: RefCell::default(),
            hosts: Cell::default(),
        }
    }

    /// A reader of `file`.
    pub(super) fn reader(&'a self, file: &str) -> Reader<'a> {
        let mut reader = Reader::new(file, self.files, self);
        reader.further = Some(("congestion-control", self.controls.iter().map(|(name, _)| *name).collect()));
        reader
    }
}

impl<'r> Reader<'r> {
    /// Schemes that the file may name.
    pub(super) fn schemes(&self) -> &'r [&'static SchemeDef] {
        self.sources.schemes
    }

    /// The name that the simulator has for a congestion control that the caller brings.
    pub(super) fn control(&self, name: &str) -> Option<&'static str> {
        let brought = self.sources.controls.iter().find(|(known, _)| *known == name);
        brought.map(|(_, id)| *id)
    }

    /// The trace in the file that is named at `key`.
    pub(super) fn trace(&mut self, section: &Section<'_>, key: &str) -> Option<Trace> {
        let name = section.text(key)?;
        let parse = |text: String| Trace::parse(&name, &text).map_err(|e| at_line(&name, e.line, &e.why));
        let mut traces = self.sources.traces.borrow_mut();
        let read = traces.entry(name.clone()).or_insert_with(|| self.text(&name).and_then(parse)).clone();
        read.map_err(|why| self.fail_key(section, key, why)).ok()
    }

    /// The map in the file that is named at `key`.
    pub(super) fn map(&mut self, section: &Section<'_>, key: &str) -> Option<Rc<Map>> {
        let name = section.text(key)?;
        if !name.ends_with(".graphml") && !name.ends_with(".xml") {
            let message = format!("\"{name}\" is not a file whose name ends in .graphml or .xml");
            self.fail_key(section, key, message);
            return None;
        }
        let parse = |text: String| Map::parse(&text).map(Rc::new).map_err(|e| at_line(&name, e.line, &e.why));
        let mut maps = self.sources.maps.borrow_mut();
        let read = maps.entry(name.clone()).or_insert_with(|| self.text(&name).and_then(parse)).clone();
        read.map_err(|why| self.fail_key(section, key, why)).ok()
    }

    /// The flow sizes in the file `name`, which stands at `key`.
    pub(super) fn sizes(&mut self, section: &Section<'_>, key: &str, name: &str) -> Option<SizeDistribution> {
        let parse =
            |text: String| SizeDistribution::parse(name, &text).map_err(|e| at_line(name, e.line, &e.why));
        self.text(name).and_then(parse).map_err(|why| self.fail_key(section, key, why)).ok()
    }
}

/// What is wrong with the file `name`, at its line when there is one.
fn at_line(name: &str, line: Option<impl core::fmt::Display>, why: &str) -> String {
    line.map_or_else(|| format!("{name}: {why}"), |line| format!("{name}:{line}: {why}"))
}

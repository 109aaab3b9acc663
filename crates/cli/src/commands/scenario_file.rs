//! Reading scenario files.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use bandmaster_core::scenario::{Errors, Explained, Files, Options, Study, explain, parse};
use bandmaster_core::scheme::opentcp;

use super::selection::Selection;
use crate::args::{KeyArgs, Settings};
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Larger files are not scenarios.
const MAX_BYTES: u64 = 16 << 20;

/// A scenario file as read.
#[derive(Debug)]
pub(crate) struct ScenarioFile {
    /// Path as the command line gives it.
    pub(crate) path: String,
    /// Content.
    pub(crate) text: String,
    /// Where the files are that it names; none: it stands in no folder.
    pub(crate) folder: Option<PathBuf>,
    /// Files that it names, by their names, as far as they have been read.
    pub(crate) named: RefCell<BTreeMap<String, String>>,
}

/// A scenario file that was checked, and what it describes.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The file.
    pub(crate) file: ScenarioFile,
    /// How it was read.
    pub(crate) options: Options<'static>,
    /// Which of its cases are run.
    pub(crate) selection: Selection,
    /// What it describes.
    pub(crate) study: Study,
    /// Claims of the file that are about other cases than those that are run.
    pub(crate) unjudged: usize,
}

impl Checked {
    /// Says how many claims are not judged, when there are some.
    pub(crate) fn say_unjudged(&self, console: Console) {
        match self.unjudged {
            0 => {}
            1 => console.say("one claim is about other cases and is not judged"),
            more => console.say(format!("{more} claims are about other cases and are not judged")),
        }
    }
}

impl ScenarioFile {
    /// Reads a file that a person named.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let place = path.display();
        if path.is_dir() {
            return Err(Failure::usage(format!("{place}: is a folder{}", scenarios_in(path))));
        }
        let bytes = bytes_of(path, || "no such file".to_owned())
            .map_err(|why| Failure::usage(format!("{place}: {why}")))?;
        let text = String::from_utf8(bytes).map_err(|e| {
            let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
            let column = good.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
            Failure::usage(format!("{place}:{line}:{column}: is not UTF-8 text"))
        })?;
        if text.trim().is_empty() {
            return Err(Failure::usage(format!(
                "{place}: is empty; a scenario starts with `version = 1` (see `bandmaster schema`)"
            )));
        }
        Ok(Self::new(place.to_string(), text, path.parent().map(Path::to_owned)))
    }

    /// A file with this content.
    pub(crate) fn new(path: String, text: String, folder: Option<PathBuf>) -> Self {
        Self { path, text, folder, named: RefCell::default() }
    }

    /// Checks the file and keeps it with what it describes, as far as it is run.
    pub(crate) fn checked(self, options: Options<'static>, selection: Selection) -> Result<Checked, Failure> {
        let mut study = self.study(&options)?;
        let unjudged = selection.apply(&mut study, &options)?;
        Ok(Checked { file: self, options, selection, study, unjudged })
    }

    /// Checks the file and gives what it describes.
    pub(crate) fn study(&self, options: &Options<'_>) -> Result<Study, Failure> {
        parse(&self.path, &self.text, &Options { files: Some(self), ..options.clone() })
            .map_err(|errors| self.refused(errors))
    }

    /// States where every key's value comes from.
    pub(crate) fn explain(&self, options: &Options<'_>) -> Result<Vec<Explained>, Failure> {
        explain(&self.path, &self.text, &Options { files: Some(self), ..options.clone() })
            .map_err(|errors| self.refused(errors))
    }

    /// Why the file is no scenario; of a policy not every key.
    fn refused(&self, errors: Errors) -> Failure {
        match opentcp::file::parse(&self.path, &self.text) {
            Ok(_) => Failure::usage(format!(
                "{}: is a policy, not a scenario; `bandmaster explain` takes it with a --state",
                self.path
            )),
            Err(_) => errors.into(),
        }
    }
}

impl Files for ScenarioFile {
    fn read(&self, name: &str) -> Result<String, String> {
        if let Some(text) = self.named.borrow().get(name) {
            return Ok(text.clone());
        }
        let text = self.read_beside(name)?;
        self.named.borrow_mut().insert(name.to_owned(), text.clone());
        Ok(text)
    }
}

impl ScenarioFile {
    fn read_beside(&self, name: &str) -> Result<String, String> {
        let Some(folder) = &self.folder else {
            return Err("the scenario has no folder to read files from".to_owned());
        };
        let path = folder.join(name);
        if path.is_dir() {
            return Err("is a folder".to_owned());
        }
        let bytes = bytes_of(&path, || match folder.to_str() {
            Some("") => "no such file in the folder of the scenario".to_owned(),
            _ => format!("no such file in {}", folder.display()),
        })?;
        String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
    }
}

/// The content of a file, or why there is none; `missing` says it of a file that does not exist.
fn bytes_of(path: &Path, missing: impl FnOnce() -> String) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > MAX_BYTES => Err(format!("is larger than {} MiB", MAX_BYTES >> 20)),
        Ok(_) => Ok(bytes),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(missing()),
        Err(e) => Err(format!("cannot be read: {e}")),
    }
}

/// The reader's options for changes and extra sweeps from the command line.
pub(crate) fn options(settings: &Settings, keys: &KeyArgs) -> Options<'static> {
    Options {
        overrides: settings.set.clone(),
        extra_sweeps: keys.keys.clone(),
        grid: keys.grid,
        trials: settings.trials,
        seed: settings.seed,
        quick: settings.quick,
        ..Options::default()
    }
}

/// Reads and checks several files; all their errors together.
pub(crate) fn all_or_every_error<T>(
    results: impl IntoIterator<Item = Result<T, Failure>>,
) -> Result<Vec<T>, Failure> {
    let (mut good, mut messages, mut worst) = (Vec::new(), Vec::new(), Exit::Success);
    for result in results {
        match result {
            Ok(value) => good.push(value),
            Err(failure) => {
                worst = worst.max(failure.exit);
                messages.push(failure.message);
            }
        }
    }
    if messages.is_empty() { Ok(good) } else { Err(Failure { exit: worst, message: messages.join("\n") }) }
}

fn scenarios_in(folder: &Path) -> String {
    let Ok(entries) = folder.read_dir() else { return String::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    names.sort();
    match names.as_slice() {
        [] => String::new(),
        [first, rest @ ..] if rest.len() < 8 => {
            format!("; it holds {first}{}", rest.iter().map(|n| format!(", {n}")).collect::<String>())
        }
        [first, rest @ ..] => format!("; it holds {first} and {} more scenarios", rest.len()),
    }
}

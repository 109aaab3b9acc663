//! Journal of a gateway's changes; an entry is written before its change.

use std::ops::Deref;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::claims::Claim;
use super::saved::Saved;
use crate::daemon::Error;
use crate::daemon::state;

pub(super) use crate::daemon::state::{boot, namespace, namespace_lives};

pub(super) type Journal = state::Journal<Entry>;

/// A line of the journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub(super) enum Entry {
    /// A gateway begins.
    Begin {
        /// Version of the journal.
        version: u32,
        /// Its process.
        process: u32,
        /// The machine's life, which a restart of the machine ends, and all changes with it.
        boot: String,
        /// Its network namespace.
        namespace: u64,
        /// Device.
        interface: String,
        /// Its number, which no other device of this life of the machine gets; 0 in journals of version 1.
        #[serde(default)]
        index: i32,
        /// The queue discipline that it had, for people.
        before: Option<String>,
    },
    /// The queue discipline of somebody is taken away.
    RemoveQdisc {
        /// What it was.
        saved: Saved,
    },
    /// Ours comes.
    AddQdisc {
        /// By which it is known again; none in journals of version 1.
        #[serde(default)]
        made: Option<Made>,
    },
    /// Our table comes.
    AddRules {
        /// Its name.
        #[serde(default = "first_table")]
        table: String,
    },
    /// The device no longer merges received packets.
    MergingOff,
}

/// The table of version 1.
fn first_table() -> String {
    "bandmaster".to_owned()
}

/// A queue discipline that a gateway made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Made {
    /// Name.
    pub(crate) kind: String,
    /// Major and minor number.
    pub(crate) handle: u32,
    /// Number of the device.
    pub(crate) index: i32,
    /// What it carries, drawn at random: nobody else makes one with it.
    pub(crate) mark: u16,
}

/// The state directory, held by this process alone.
pub(super) struct State {
    files: state::State<Entry>,
    /// Of a gateway that runs.
    pub(super) claim: Option<Claim>,
}

impl State {
    /// Takes the folder, making it when it is not there.
    pub(super) fn hold(folder: &Path) -> Result<Self, Error> {
        Ok(Self { files: state::State::hold(folder)?, claim: None })
    }

    /// Tells others who holds the folder.
    pub(super) fn hold_as(&mut self, name: &str, claim: Claim) -> Result<(), Error> {
        self.files.hold_as(&format!("gateway `{name}`"))?;
        self.claim = Some(claim);
        Ok(())
    }
}

impl Deref for State {
    type Target = state::State<Entry>;

    fn deref(&self) -> &state::State<Entry> {
        &self.files
    }
}

/// The journal in `folder`. A last line that is cut off was no change yet.
pub(super) fn read(folder: &Path) -> Result<Option<Vec<Entry>>, Error> {
    state::read(folder)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::PathBuf;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("bandmaster-journal-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn entries_come_back_and_a_cut_line_is_no_change() {
        let folder = folder("cut");
        let state = State::hold(&folder).expect("held");
        assert_eq!(state.left(), Ok(None));
        let begin = Entry::Begin {
            version: 2,
            process: 7,
            boot: boot(),
            namespace: namespace(),
            interface: "wan0".to_owned(),
            index: 3,
            before: Some("noqueue".to_owned()),
        };
        let mut journal = state.begin(&begin).expect("begun");
        let made = Made { kind: "htb".to_owned(), handle: 1 << 16, index: 3, mark: 77 };
        let add = Entry::AddQdisc { made: Some(made) };
        journal.write(&add).expect("written");
        let mut file = fs::OpenOptions::new().append(true).open(folder.join(state::JOURNAL)).expect("open");
        file.write_all(b"{\"entry\":\"add-ru").expect("written");
        assert_eq!(state.left(), Ok(Some(vec![begin.clone(), add])));
        assert!(state.begin(&begin).is_err(), "a journal is never overwritten");
        assert!(State::hold(&folder).is_err(), "one gateway at a time");
        state.forget().expect("gone");
        assert_eq!(state.left(), Ok(None));
        fs::remove_dir_all(&folder).expect("removed");
    }

    /// Lines of version 1.
    #[test]
    fn entries_of_the_version_before_are_read() {
        let folder = folder("before");
        let state = State::hold(&folder).expect("held");
        let lines = "{\"entry\":\"begin\",\"version\":1,\"process\":7,\"boot\":\"b\",\"namespace\":1,\"interface\":\"wan0\",\
                     \"before\":null}\n{\"entry\":\"add-qdisc\"}\n{\"entry\":\"add-rules\"}\n";
        fs::write(folder.join(state::JOURNAL), lines).expect("written");
        let left = state.left().expect("read").expect("entries");
        assert_eq!(left[1..], [Entry::AddQdisc { made: None }, Entry::AddRules { table: first_table() }]);
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_journal_that_is_none_is_an_error_with_its_line() {
        let folder = folder("none");
        let state = State::hold(&folder).expect("held");
        fs::write(folder.join(state::JOURNAL), "{\"entry\":\"add-qdisc\"}\nnonsense\n").expect("written");
        assert!(state.left().is_err_and(|e| e.to_string().contains("journal:2:")));
        fs::remove_dir_all(&folder).expect("removed");
    }
}

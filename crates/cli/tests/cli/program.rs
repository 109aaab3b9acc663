//! A scratch folder, a small scenario in it, and the binary.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Two variants, a sweep of two points, two trials: a fraction of a second.
pub(crate) const SCENARIO: &str = r#"version = 1
name = "small"
title = "Two flows share a link"

[run]
duration = "2s"
warm-up = "500ms"
trials = 2
quick-trials = 1

[network]
builder = "dumbbell"
left = 2
right = 2

[network.access]
rate = "100mbit"
delay = "uniform(1ms, 3ms)"

[network.bottleneck]
rate = "10mbit"
delay = "2ms"
queue = "40pkt"

[[flows]]
name = "bulk"
from = "left"
to = "right"
start = "uniform(0s, 100ms)"

[[compare]]
name = "newreno"
set = { "tcp.congestion-control" = "newreno" }

[[compare]]
name = "cubic"
set = { "tcp.congestion-control" = "cubic" }

[[sweeps]]
name = "count"
key = "flows.bulk.count"
values = [1, 2]

[[claims]]
id = "busy"
text = "The link is used"
metric = "throughput"
variant = ["newreno", "cubic"]
low = 1.0
source = "by hand"
"#;

/// What a run of the binary left.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// stdout as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e} in {self:?}"))
    }

    /// Fails unless the exit code is `code`.
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}

/// An empty folder that the binary runs in; removed at the end of the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A folder of that name, unique among the tests.
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the target folder is writable");
        Self(path)
    }

    /// A folder with [`SCENARIO`] as `small.toml`.
    pub(crate) fn with_scenario(name: &str) -> Self {
        let scratch = Self::new(name);
        scratch.write("small.toml", SCENARIO);
        scratch
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).expect("the scratch folder is writable");
    }

    /// The binary with `args`, not started.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bandmaster"));
        command.args(args).current_dir(&self.0).stdin(Stdio::null());
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        ended(self.command(args))
    }

    /// Every file below a folder with its content.
    pub(crate) fn files(&self, folder: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.path(folder), Path::new(""), &mut files);
        files
    }

    /// Names of the files below a folder.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        self.files(folder).into_keys().map(|path| path.to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Runs a command to its end.
pub(crate) fn ended(mut command: Command) -> Ended {
    let output = command.output().expect("the binary starts");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
    }
}

/// Copies the binary to where others may run it. Another process copies it: if this one did, a child that a concurrent test
/// forks would hold the file open for writing, and such a file cannot be run ("text file busy").
#[cfg(target_os = "linux")]
pub(crate) fn copy_program(to: &Path) {
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_bandmaster")).arg(to);
    ended(copy).expect(0);
}

#[cfg(target_os = "linux")]
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Why no test should make namespaces here; none: it may.
#[cfg(target_os = "linux")]
pub(crate) fn no_lab() -> Option<&'static str> {
    if std::env::var_os("BANDMASTER_NO_LAB").is_some() {
        return Some("BANDMASTER_NO_LAB is set");
    }
    (!is_root()).then_some("needs root: network namespaces")
}

/// Says that a test did nothing. Not by a macro, whose words are not shown when the test passes.
#[cfg(target_os = "linux")]
pub(crate) fn skip(test: &str, why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

fn collect(folder: &Path, prefix: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let entry = entry.expect("the folder can be read");
        let name = prefix.join(entry.file_name());
        if entry.path().is_dir() {
            collect(&entry.path(), &name, files);
        } else {
            files.insert(name, fs::read(entry.path()).expect("the file can be read"));
        }
    }
}

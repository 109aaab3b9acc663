//! Arguments that several commands share.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;
#[cfg(target_os = "linux")]
use std::time::Duration;

use bandmaster_core::scenario::{ExtraSweep, Override};
#[cfg(target_os = "linux")]
use bandmaster_core::units::{Dimension, parse_quantity};
use clap::{Args, ValueHint};

use crate::console::Console;
use crate::exit::Failure;
use crate::jobs::Cores;

/// Changes to what the file says.
#[derive(Args, Debug)]
pub(crate) struct Settings {
    /// Replace the value of a key; dotted path, lists by name or number; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<Override>,
    /// Trials per case, instead of run.trials
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole_number::<u32>(1, 100_000))]
    pub(crate) trials: Option<u32>,
    /// Seed of every random stream, instead of run.seed
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole_number::<u64>(0, i64::MAX as u64))]
    pub(crate) seed: Option<u64>,
    /// run.quick-trials trials and the `quick` values of sweeps: a look, not a result
    #[arg(long)]
    pub(crate) quick: bool,
}

/// Sweeps in addition to those of the file.
#[derive(Args, Clone, Default, Debug)]
pub(crate) struct KeyArgs {
    /// A key and its values; again for another sweep
    #[arg(long = "key", value_name = "KEY=V1,V2,...")]
    pub(crate) keys: Vec<ExtraSweep>,
    /// All combinations of the values of all --key, instead of one key at a time
    #[arg(long, requires = "keys")]
    pub(crate) grid: bool,
}

/// How to work and where results go.
#[derive(Args, Debug)]
pub(crate) struct WorkArgs {
    #[command(flatten)]
    pub(crate) jobs: JobsArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// Where results go.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReportArgs {
    /// Folder for the report; must be new or empty [default: results/NAME-001, -002, ...]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "no_report")]
    pub(crate) out: Option<PathBuf>,
    /// Replace an earlier report in the --out folder
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Print summary and claims as JSON on stdout, instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write no folder, print only
    #[arg(long)]
    pub(crate) no_report: bool,
}

/// Whether trials are shown while they run.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WatchArgs {
    /// Show trials live on the terminal while they run; q closes the view, Ctrl-C stops the trials
    #[arg(long)]
    watch: bool,
}

impl WatchArgs {
    /// The terminal with the view that is asked for.
    ///
    /// # Errors
    /// When there can be no view.
    pub(crate) fn applied(self, console: Console, json: bool) -> Result<Console, Failure> {
        if self.watch { console.with_view(json) } else { Ok(console) }
    }
}

/// How a daemon's status is shown.
#[cfg(target_os = "linux")]
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct StatusArgs {
    /// JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the status live on the terminal, asked for every second or INTERVAL; q ends it
    #[arg(
        long,
        value_name = "INTERVAL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        value_parser = interval
    )]
    pub(crate) watch: Option<Duration>,
}

/// Bounds of the time between two questions to a daemon, and their words.
#[cfg(target_os = "linux")]
const INTERVALS: (Duration, Duration, &str) =
    (Duration::from_millis(100), Duration::from_secs(3600), "write a time from 100ms to 60min");

#[cfg(target_os = "linux")]
fn interval(text: &str) -> Result<Duration, String> {
    let (least, most, words) = INTERVALS;
    let nanos = parse_quantity(text, Dimension::Span).map_err(|why| format!("{why}; {words}"))?;
    let interval = Duration::from_nanos(nanos);
    if (least..=most).contains(&interval) { Ok(interval) } else { Err(words.to_owned()) }
}

/// How many trials at a time.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct JobsArgs {
    /// Trials at the same time; does not change results [default: the number of cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole_number::<u16>(1, 1_024))]
    pub(crate) jobs: Option<u16>,
    /// Threads for each trial whose scenario has `run.partitions`; does not change results [default: the jobs
    /// that have no trial of their own]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole_number::<u16>(1, 64))]
    pub(crate) threads: Option<u16>,
}

impl JobsArgs {
    /// Trials at the same time, and threads for each.
    pub(crate) fn cores(self) -> Cores {
        let asked = |number: Option<u16>| number.and_then(|number| NonZeroUsize::new(number.into()));
        let jobs = asked(self.jobs).or_else(|| thread::available_parallelism().ok());
        Cores { jobs: jobs.unwrap_or(NonZeroUsize::MIN), each: asked(self.threads) }
    }
}

/// What to capture.
#[derive(Args, Clone, Default, Debug)]
pub(crate) struct CaptureArgs {
    /// Write the packets that a port sends in trial 0 of the first case as FROM-TO.pcapng, for Wireshark
    #[arg(long, value_name = "FROM->TO", conflicts_with = "no_report")]
    pub(crate) pcap: Option<String>,
    /// Capture the base case of this variant instead
    #[arg(long, value_name = "VARIANT", requires = "pcap")]
    pub(crate) pcap_case: Option<String>,
    /// Write at most so many bytes per packet, from its IP header on; its length stays in the file
    #[arg(long, value_name = "BYTES", requires = "pcap", value_parser = whole_number::<u32>(1, 65_535))]
    pub(crate) pcap_snaplen: Option<u32>,
}

/// A parser of numbers from `least` to `most`, which `T` can hold.
pub(crate) fn whole_number<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        let typed = number.and_then(|number| T::try_from(number).ok());
        typed.ok_or_else(|| format!("write a whole number from {least} to {most}"))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_a_unit_and_bounds() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("60min"), Ok(Duration::from_secs(3600)));
        for wrong in ["1", "soon", "99ms", "61min"] {
            assert!(interval(wrong).is_err_and(|why| why.contains("from 100ms to 60min")), "{wrong}");
        }
    }
}

//! `bandmaster reproduce`, and the papers that it knows.

use bandmaster_core::scenario::{Options, Override};
use clap::Args;
use clap::builder::PossibleValuesParser;

use super::execute::{Experiment, SIMULATION, execute};
use super::scenario_file::{ScenarioFile, all_or_every_error};
use super::selection::Selection;
use crate::args::{CaptureArgs, ReportArgs, WorkArgs, whole_number};
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Redo the evaluation of a paper and judge it against the published numbers
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ReproduceArgs {
    /// Which paper; without it all, each into a folder of its own
    #[arg(value_name = "NAME", value_parser = names())]
    name: Option<String>,
    /// Fewer trials and values, as the scenarios say: a look, not a result
    #[arg(long)]
    quick: bool,
    /// The network of the paper where the default is a part of it (opentcp: 3,864 hosts)
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Seed of every random stream, instead of those of the scenarios
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole_number::<u64>(0, i64::MAX as u64))]
    seed: Option<u64>,
    #[command(flatten)]
    work: WorkArgs,
}

const HELP: &str = "\
Examples:
  bandmaster reproduce bas --quick
  bandmaster reproduce bas --out results/bas
  bandmaster reproduce fbqm --seed 7               do the claims hold with other random numbers?
  bandmaster list reproductions

The scenarios are part of the program; their files are in scenarios/ of the source. Without NAME,
--out gets a folder for each paper, and --json prints a document for each.

Exit codes: 0 every claim holds or is known not to be reproduced, 1 a claim fails, 2 usage,
4 failure, 5 some trials failed, 130 interrupted (finished trials are kept).";

/// A paper's evaluation as scenario files.
#[derive(Debug)]
pub(crate) struct Reproduction {
    /// Name on the command line.
    pub(crate) name: &'static str,
    /// One line about it.
    pub(crate) about: &'static str,
    /// By file: its path in the source, and its content.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// Keys and values that `--quick` and `--full` change in the first file in addition to trials and sweeps.
    pub(crate) quick: &'static [(&'static str, &'static str)],
    pub(crate) full: &'static [(&'static str, &'static str)],
}

macro_rules! scenario_files {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../", $path)))),+]
    };
}

/// Every paper that can be redone.
pub(crate) static REPRODUCTIONS: &[Reproduction] = &[
    Reproduction {
        name: "bas",
        about: "Ito, Koga, Iida 2018: bandwidth allocation by fair windows, Figs. 6 to 14",
        files: scenario_files![
            "scenarios/bas/fixed.toml",
            "scenarios/bas/variable.toml",
            "scenarios/bas/max-min.toml",
            "scenarios/bas/directions.toml",
            "scenarios/bas/uncontrolled.toml"
        ],
        quick: &[],
        full: &[],
    },
    Reproduction {
        name: "fbqm",
        about: "Choi, Sekhon, Seok 2016: flow-based queue management, Fig. 1(b) to (d)",
        files: scenario_files![
            "scenarios/fbqm/paper.toml",
            "scenarios/fbqm/many.toml",
            "scenarios/fbqm/attack.toml"
        ],
        quick: &[],
        full: &[],
    },
    Reproduction {
        name: "er2bc",
        about: "Matsuda, Ishihara 2019: a priority gateway on a path whose bandwidth moves, Tables 5 and 6, Figs. 11 to 14",
        files: scenario_files![
            "scenarios/er2bc/table5-tcp.toml",
            "scenarios/er2bc/table5-udp.toml",
            "scenarios/er2bc/table6-tcp.toml",
            "scenarios/er2bc/table6-udp.toml",
            "scenarios/er2bc/estimator-random.toml",
            "scenarios/er2bc/lossy.toml",
            "scenarios/er2bc/lossy-tcp.toml",
            "scenarios/er2bc/steady.toml",
            "scenarios/er2bc/varying.toml",
            "scenarios/er2bc/moving.toml",
            "scenarios/er2bc/grid.toml"
        ],
        quick: &[],
        full: &[],
    },
    Reproduction {
        name: "qcbf",
        about: "Pang et al. 2019: incast over two top-of-rack routers, Table 1, Figs. 5 and 6",
        files: scenario_files![
            "scenarios/qcbf/shallow.toml",
            "scenarios/qcbf/deep.toml",
            "scenarios/qcbf/many.toml",
            "scenarios/qcbf/plain.toml",
            "scenarios/qcbf/cross.toml",
            "scenarios/qcbf/cross-connections.toml",
            "scenarios/qcbf/persistent.toml",
            "scenarios/qcbf/persistent-many.toml",
            "scenarios/qcbf/shared-window.toml",
            "scenarios/qcbf/fat-tree.toml"
        ],
        quick: &[],
        full: &[],
    },
    Reproduction {
        name: "opentcp",
        about: "Ghobadi, Hassas Yeganeh, Ganjali 2012: policies on an all-to-all benchmark, Figs. 4 and 5, Table 1",
        files: scenario_files![
            "scenarios/opentcp/scinet.toml",
            "scenarios/opentcp/cycles.toml",
            "scenarios/opentcp/connections.toml",
            "scenarios/opentcp/policies.toml"
        ],
        quick: &[
            ("network.leaves", "3"),
            ("network.size", "14"),
            ("network.fabric.rate", "3.3gbit"),
            ("network.fabric.queue", "128pkt"),
            ("flows.messages.sizes", "160KiB"),
        ],
        // As many file system flows in all: the policies look at the busiest of all links.
        full: &[("network.leaves", "92"), ("flows.files.load", "0.00065")],
    },
    Reproduction {
        name: "published",
        about: "Results of other papers: DCTCP, CUBIC, PFTK, MPTCP, CoDel, PIE, ARED, buffers, RTT, fair queueing",
        files: scenario_files![
            "scenarios/published/dctcp.toml",
            "scenarios/published/dctcp-incast.toml",
            "scenarios/published/windows.toml",
            "scenarios/published/pftk.toml",
            "scenarios/published/fat-tree.toml",
            "scenarios/published/aqm.toml",
            "scenarios/published/buffers.toml",
            "scenarios/published/rtt-exponent.toml",
            "scenarios/published/processor-sharing.toml"
        ],
        quick: &[],
        full: &[],
    },
];

impl Reproduction {
    /// How the file at `path` is read.
    fn options(&self, path: &str, quick: bool, full: bool, seed: Option<u64>) -> Options<'static> {
        let is_first = self.files.first().is_some_and(|(first, _)| *first == path);
        let changed = [(quick, self.quick), (full, self.full)];
        let changed = changed.into_iter().filter(|(given, _)| *given && is_first).flat_map(|(_, keys)| keys);
        let of = |&(key, value): &(&str, &str)| Override { key: key.to_owned(), value: value.to_owned() };
        Options { quick, seed, overrides: changed.map(of).collect(), ..Options::default() }
    }
}

/// The names, for the command line.
fn names() -> PossibleValuesParser {
    REPRODUCTIONS.iter().map(|r| r.name).collect::<Vec<_>>().into()
}

/// Redoes one paper, or all.
pub(crate) fn reproduce(args: &ReproduceArgs, console: Console) -> Result<Exit, Failure> {
    if args.full
        && let Some(name) = &args.name
        && REPRODUCTIONS.iter().any(|r| r.name == name && r.full.is_empty())
    {
        let with: Vec<&str> = REPRODUCTIONS.iter().filter(|r| !r.full.is_empty()).map(|r| r.name).collect();
        let message = format!("`{name}` has no larger form; `--full` is for {}", with.join(", "));
        return Err(Failure::usage(message));
    }
    let asked = |r: &&Reproduction| args.name.as_ref().is_none_or(|name| name == r.name);
    let mut worst = Exit::Success;
    for reproduction in REPRODUCTIONS.iter().filter(asked) {
        let out = match &args.name {
            Some(_) => args.work.report.out.clone(),
            None => args.work.report.out.as_ref().map(|out| out.join(reproduction.name)),
        };
        let report = ReportArgs { out, ..args.work.report.clone() };
        let work = WorkArgs { jobs: args.work.jobs, report };
        worst = worst.max(reproduce_one(reproduction, args, &work, console)?);
        if worst == Exit::Interrupted {
            break;
        }
    }
    Ok(worst)
}

fn reproduce_one(
    reproduction: &Reproduction,
    args: &ReproduceArgs,
    work: &WorkArgs,
    console: Console,
) -> Result<Exit, Failure> {
    let &ReproduceArgs { quick, full, seed, .. } = args;
    let read = |&(path, text): &(&str, &str)| {
        let file = ScenarioFile::new(path.to_owned(), text.to_owned(), None);
        file.checked(reproduction.options(path, quick, full, seed), Selection::default())
    };
    execute(
        &SIMULATION,
        &Experiment {
            name: reproduction.name.to_owned(),
            title: reproduction.about.to_owned(),
            studies: all_or_every_error(reproduction.files.iter().map(read))?,
            command: vec!["reproduce".to_owned(), reproduction.name.to_owned()],
            settings: [(quick, "--quick"), (full, "--full")]
                .into_iter()
                .filter(|(given, _)| *given)
                .map(|(_, word)| word.to_owned())
                .chain(seed.iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]))
                .collect(),
            capture: CaptureArgs::default(),
        },
        work,
        console,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reproduction_is_valid_in_full_and_quick() {
        for reproduction in REPRODUCTIONS {
            for (path, text) in reproduction.files {
                let file = ScenarioFile::new((*path).to_owned(), (*text).to_owned(), None);
                let full = file.study(&Options::default()).map_err(|e| e.message).expect(path);
                let quick = file
                    .study(&reproduction.options(path, true, false, None))
                    .map_err(|e| e.message)
                    .expect(path);
                file.study(&reproduction.options(path, false, true, None))
                    .map_err(|e| e.message)
                    .expect(path);
                assert!(!full.claims.is_empty(), "{path} claims nothing");
                assert!(quick.cases.len() <= full.cases.len(), "{path} has more cases in quick mode");
            }
        }
    }
}

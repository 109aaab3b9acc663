//! `bandmaster sweep`.

use clap::Args;

use super::run::{FileArgs, run_file};
use crate::args::KeyArgs;
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Run a scenario file over values of any key
#[derive(Args, Debug)]
#[command(after_help = HELP, mut_arg("keys", |arg| arg.required(true)))]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    file: FileArgs,
}

const HELP: &str = "\
Examples:
  bandmaster sweep network.toml --key flows.uploads.count=1,2,4,8,16
  bandmaster sweep network.toml --key 'network.links.0.delay=1ms,uniform(2ms, 6ms)' --quick
  bandmaster sweep network.toml --grid --key tcp.initial-window=3pkt,10pkt --key tcp.sack=true,false

Each --key adds a sweep of its own to those of the file, for every variant; keys are changed one
at a time. With --grid all --key are one sweep, `grid`, of every combination of their values. With
--base the sweeps of the file are left out.

Exit codes: 0 every claim holds, 1 a claim fails, 2 usage or scenario, 3 missing capability,
4 failure, 5 some trials failed, 130 interrupted (finished trials are kept).";

/// Runs one scenario file over values of keys.
pub(crate) fn sweep(args: &SweepArgs, console: Console) -> Result<Exit, Failure> {
    run_file("sweep", &args.file, &args.keys, console)
}

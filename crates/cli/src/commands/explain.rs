//! `bandmaster explain`.

use std::path::PathBuf;

use bandmaster_core::scenario::Explained;
use bandmaster_core::scheme::opentcp;
use bandmaster_core::scheme::opentcp::condition::Term;
use bandmaster_core::scheme::opentcp::policy::Explanation;
use bandmaster_core::scheme::opentcp::statistic::State;
use clap::{Args, ValueHint};
use comfy_table::Table;
use serde_json::json;

use super::scenario_file::{ScenarioFile, options};
use crate::args::{KeyArgs, Settings};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::report::table::plain;

/// Print the keys in force in a scenario, their values, and where each comes from
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ExplainArgs {
    /// Scenario file; with --state a policy file of OpenTCP
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    scenario: PathBuf,
    #[command(flatten)]
    settings: Settings,
    /// Say which rule of the policy fires in this state of the network, and why
    #[arg(long, value_name = "STATE.json", value_hint = ValueHint::FilePath, conflicts_with_all = ["set", "trials", "seed", "quick"])]
    state: Option<PathBuf>,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  bandmaster explain network.toml
  bandmaster explain network.toml --json | jq '.[] | select(.origin | startswith(\"default\"))'
  bandmaster explain policies/opentcp1.toml --state state.json

docs/schemes/opentcp.md has the form of a state.

Exit codes: 0 valid, 2 not valid.";

/// Characters of a value in the table.
const VALUE_WIDTH: usize = 60;

/// Prints every key of a scenario, its value, and where that comes from.
pub(crate) fn explain(args: &ExplainArgs, console: Console) -> Result<Exit, Failure> {
    let file = ScenarioFile::read(&args.scenario)?;
    if let Some(state) = &args.state {
        return explain_policy(&file, &ScenarioFile::read(state)?, args.json, console);
    }
    let keys = file.explain(&options(&args.settings, &KeyArgs::default()))?;
    let text = if args.json { format!("{:#}", json!(keys)) } else { table(&keys) };
    console.print(&text)?;
    Ok(Exit::Success)
}

/// Prints which rule of a policy fires in a state, and why.
fn explain_policy(
    policy: &ScenarioFile,
    state: &ScenarioFile,
    as_json: bool,
    console: Console,
) -> Result<Exit, Failure> {
    let policy = opentcp::file::parse(&policy.path, &policy.text)?;
    let read: State =
        serde_json::from_str(&state.text).map_err(|e| Failure::usage(format!("{}: {e}", state.path)))?;
    let explanation = policy.explain(&read);
    let text = if as_json { format!("{:#}", json!(explanation)) } else { decision(&explanation) };
    console.print(&text)?;
    Ok(Exit::Success)
}

fn decision(explanation: &Explanation) -> String {
    let mut table = Table::new();
    table.set_header(["of", "condition", "holds", "because"]);
    for step in &explanation.steps {
        let shown = |term: &Term| match term.value {
            Some(value) => format!("{} = {value}", term.text),
            None => format!("{} has no data", term.text),
        };
        let because: Vec<String> = step.unknown.iter().cloned().chain(step.terms.iter().map(shown)).collect();
        let holds = if step.holds { "yes" } else { "no" };
        table.add_row([step.of.as_str(), step.condition.as_str(), holds, &because.join("; ")]);
    }
    let outcome = match &explanation.fired {
        Some(rule) => format!("rule `{rule}` fires: {}", explanation.tuning),
        None => "no rule fires".to_owned(),
    };
    format!("{}: {outcome}\n\n{}", explanation.policy, plain(table))
}

fn table(keys: &[Explained]) -> String {
    let mut table = Table::new();
    table.set_header(["key", "value", "from"]);
    for key in keys {
        table.add_row([key.path.clone(), one_line(&key.value), key.origin.clone()]);
    }
    plain(table)
}

/// The start of a long text; `--json` gives it in full.
fn one_line(value: &str) -> String {
    let mut words = value.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(VALUE_WIDTH) {
        words.truncate(end);
        words.push_str("...");
    }
    words
}

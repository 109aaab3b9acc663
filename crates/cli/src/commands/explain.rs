//! `bandmaster explain`.

use bandmaster_core::scenario::{Explained, explain as explain_keys};
use comfy_table::{ContentArrangement, Table};

use super::scenario_file::{ScenarioFile, options};
use crate::args::ExplainArgs;
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Prints every key of a scenario, its value, and where that comes from.
pub(crate) fn explain(args: &ExplainArgs, console: Console) -> Result<Exit, Failure> {
    let file = ScenarioFile::read(&args.scenario)?;
    let keys = explain_keys(&file.path, &file.text, &options(&args.settings, &[]))?;
    let text = if args.json { json(&keys)? } else { table(&keys) };
    console.print(&text)?;
    Ok(Exit::Success)
}

fn json(keys: &[Explained]) -> Result<String, Failure> {
    serde_json::to_string_pretty(keys).map_err(|e| Failure::run(format!("explain: {e}")))
}

fn table(keys: &[Explained]) -> String {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["key", "value", "from"]);
    for key in keys {
        table.add_row([&key.path, &key.value, &key.origin]);
    }
    table.trim_fmt()
}

//! `bandmaster explain`.

use bandmaster_core::scenario::Explained;
use comfy_table::{ContentArrangement, Table};

use super::scenario_file::{ScenarioFile, options};
use crate::args::ExplainArgs;
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Characters of a value in the table.
const VALUE_WIDTH: usize = 60;

/// Prints every key of a scenario, its value, and where that comes from.
pub(crate) fn explain(args: &ExplainArgs, console: Console) -> Result<Exit, Failure> {
    let file = ScenarioFile::read(&args.scenario)?;
    let keys = file.explain(&options(&args.settings, &[]))?;
    let text = if args.json { json(&keys)? } else { table(&keys) };
    console.print(&text)?;
    Ok(Exit::Success)
}

fn json(keys: &[Explained]) -> Result<String, Failure> {
    serde_json::to_string_pretty(keys).map_err(|e| Failure::run(format!("explain: {e}")))
}

fn table(keys: &[Explained]) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["key", "value", "from"]);
    for key in keys {
        table.add_row([key.path.clone(), one_line(&key.value), key.origin.clone()]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
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

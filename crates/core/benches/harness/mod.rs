//! What the benches of this crate have in common around their measurements: arguments, tables and numbers out of JSON.

use comfy_table::Table;
use serde_json::Value;

/// Measures, and prints that for people, or as JSON with `--json`.
pub(crate) fn run(measure: impl FnOnce() -> Value, print: impl FnOnce(&Value)) -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => print(&measure()),
        ["--json"] => println!("{:#}", measure()),
        _ => return Err(format!("{arguments:?}: allowed is --json")),
    }
    Ok(())
}

/// A table without lines, with this first row.
pub(crate) fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header(header);
    table
}

/// The `of` ("median", "min" or "max") of a spread in `row`; not-a-number when it is not there.
pub(crate) fn number(row: &Value, key: &str, of: &str) -> f64 {
    row[key][of].as_f64().unwrap_or(f64::NAN)
}

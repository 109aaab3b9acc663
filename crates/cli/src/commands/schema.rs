//! `bandmaster schema`.

use bandmaster_core::scenario::json_schema;
use bandmaster_core::scheme::REGISTRY;

use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Examples and exit codes.
pub(crate) const HELP: &str = "\
Example:
  bandmaster schema > bandmaster.schema.json

Editors check and complete a scenario whose first line is `#:schema bandmaster.schema.json`.

Exit codes: 0 done, 2 usage.";

/// Prints the JSON Schema of scenario files.
pub(crate) fn schema(console: Console) -> Result<Exit, Failure> {
    console.print(&format!("{:#}", json_schema(REGISTRY)))?;
    Ok(Exit::Success)
}

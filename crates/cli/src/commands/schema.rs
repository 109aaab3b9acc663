//! `bandmaster schema`.

use bandmaster_core::scenario::json_schema;

use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Prints the JSON Schema of scenario files.
pub(crate) fn schema(console: Console) -> Result<Exit, Failure> {
    console.print(&format!("{:#}", json_schema()))?;
    Ok(Exit::Success)
}

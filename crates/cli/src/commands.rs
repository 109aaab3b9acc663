//! The commands.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod execute;
pub(crate) mod explain;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod reproduce;
pub(crate) mod run;
pub(crate) mod scenario_file;
pub(crate) mod schema;
pub(crate) mod sweep;

//! The commands.

#[cfg(target_os = "linux")]
pub(crate) mod agent;
pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod completions;
#[cfg(target_os = "linux")]
pub(crate) mod controller;
pub(crate) mod doctor;
#[cfg(target_os = "linux")]
pub(crate) mod emulate;
pub(crate) mod execute;
pub(crate) mod explain;
pub(crate) mod export;
#[cfg(target_os = "linux")]
pub(crate) mod gateway;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod merge;
pub(crate) mod reproduce;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod scenario_file;
pub(crate) mod schema;
pub(crate) mod selection;
pub(crate) mod shard;
pub(crate) mod sweep;
#[cfg(target_os = "linux")]
pub(crate) mod switch;
#[cfg(target_os = "linux")]
pub(crate) mod whatif;

#[cfg(target_os = "linux")]
use crate::exit::Failure;

/// As `--json` prints it.
#[cfg(target_os = "linux")]
pub(crate) fn to_json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(Failure::run)
}

//! Scenario files: `Raw` is what was written, [`Scenario`] is valid and complete.
//!
//! A file describes a [`Study`]: one base scenario, variants of it to compare, sweeps over keys, claims and figures.
//! [`Study::cases`] gives the scenarios to run.

mod model;

pub use model::*;

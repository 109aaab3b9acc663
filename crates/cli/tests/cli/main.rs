//! The binary as a person or a script uses it.

mod capture;
mod interrupt;
mod program;
mod refusals;
mod results;
mod teaching;

//! The binary as a person or a script uses it.

#[cfg(target_os = "linux")]
mod agent;
mod browser;
mod capture;
mod clusters;
mod compare;
mod controller;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod emulate;
mod export;
mod figures;
mod interrupt;
#[cfg(target_os = "linux")]
mod pages;
mod policies;
mod program;
mod records;
mod refusals;
mod results;
mod teaching;
#[cfg(target_os = "linux")]
mod watch;
#[cfg(target_os = "linux")]
mod whatif;

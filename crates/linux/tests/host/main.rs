//! The TCP of real hosts, set and read by programs in the kernel, and by an agent.

mod agent;
mod controller;
mod hosts;
#[path = "../machine/mod.rs"]
mod machine;
mod programs;
mod sources;

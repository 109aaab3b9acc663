//! The TCP of real hosts, set and read by programs in the kernel, and by an agent.

mod agent;
mod controller;
mod discovery;
mod edge;
mod falsehoods;
mod fbqm;
mod hosts;
#[path = "../machine/mod.rs"]
mod machine;
mod messages;
mod mptcp;
mod programs;
mod relay;
mod routes;
mod soak;
mod sources;
mod switch;
mod wear;
mod windows;

//! The parts of bandmaster that need a Linux kernel.
#![cfg(target_os = "linux")]

mod address;
pub mod agent;
mod cables;
pub mod calibrate;
pub mod controller;
pub mod daemon;
pub mod doctor;
mod enrolment;
mod error;
mod forwarder;
pub mod gateway;
pub mod htb;
pub mod iperf3;
mod journal;
pub mod kernel;
pub mod lab;
mod limits;
pub mod netns;
mod network;
mod packet_ring;
mod probes;
mod receipts;
pub mod switch;
mod syscall;
mod timing;
mod traffic;
mod wiring;
mod workplan;

pub use error::Error;
pub use journal::{abandon, clean};
pub use limits::{Remarks, check};
pub use wiring::make_tun;

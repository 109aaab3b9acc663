//! Everything of bandmaster that touches a Linux kernel.
#![cfg(target_os = "linux")]

pub mod gateway;

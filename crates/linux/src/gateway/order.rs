//! Counts in the order of packets, by programs in the kernel: behind the shaper, and before everything that arrives.
//!
//! Only file descriptors hold the programs, so the kernel removes them when the process ends, for whatever reason.

use bandmaster_core::control::Passed;
use bandmaster_core::scheme::er2bc::deployment::Role;

use super::Loaded;
use crate::kernel::NoProgram;

mod program;

pub(super) use program::Order;

/// Whether this program could count in the order of packets here: loads everything, attaches nothing.
///
/// # Errors
/// Why not.
pub fn counts_in_order() -> Result<(), NoProgram> {
    Order::load(Role::Both).map(drop)
}

/// How a gateway with the deployment `loaded` would count packets, if it ran here, now, as this user.
pub fn counting(loaded: &Loaded) -> String {
    let role = loaded.deployment.role;
    how(role, Order::load(role).as_ref().map(|_| ()))
}

/// How packets are counted in a run that changes something.
pub(super) fn how(role: Role, order: Result<(), &NoProgram>) -> String {
    let Err(why) = order else {
        return "programs in the kernel (eBPF), in the order of packets".to_owned();
    };
    let how = match role {
        Role::Sender => "class counters of the htb, read before and after each probe",
        Role::Receiver => "an nftables counter, read when a probe comes: nearly in the order of packets",
        Role::Both => "class counters of the htb and an nftables counter: nearly in the order of packets",
    };
    format!("{how}; no programs in the kernel: {why}")
}

/// What had passed before a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub(super) passed: Passed,
    /// When, by the clock of [`crate::daemon::clock::Clock`] before its start is taken off.
    pub(super) at: u64,
}

/// Which way data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Direction {
    Sent = 0,
    Received = 1,
}

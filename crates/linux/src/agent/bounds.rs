//! Bounds on live connections at this host's end: a window, and a pace where this host sends.

use std::collections::{BTreeMap, BTreeSet};

use bandmaster_core::control::{FlowEnd, UNBOUNDED};
use bandmaster_core::units::{Bytes, Rate};

use super::journal::{Entry, NO_CAP};
use crate::kernel::NoProgram;
use crate::kernel::tcp::{Before, Connection, HostTcp, Settings};

/// A pace without a limit.
const NO_PACE: u32 = u32::MAX;
/// The widest window that can be set; as good as none.
const NO_WINDOW: u32 = i32::MAX as u32;

/// Whether the kernel's program keeps the window of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Following {
    /// It is set in a pass over the connections, and the kernel may forget it.
    No,
    /// It will, when the connection has carried more than a first window.
    Soon,
    /// With each segment that leaves.
    Yes,
}

/// What connections are bounded to, and what they had before.
#[derive(Default)]
pub(super) struct Bounds {
    /// By cookie: what is to be set.
    pending: BTreeMap<u64, Settings>,
    /// By cookie: what those had that have been bounded.
    before: BTreeMap<u64, Before>,
    /// By cookie: windows that receivers were bounded to last.
    windows: BTreeMap<u64, u32>,
    /// Those whose windows the kernel's program keeps.
    kept: BTreeSet<u64>,
}

impl Bounds {
    /// How many connections are bounded.
    pub(super) fn len(&self) -> usize {
        self.before.len()
    }

    /// Connections that are to be bounded.
    pub(super) fn pending(&self) -> impl Iterator<Item = u64> {
        self.pending.keys().copied()
    }

    /// The window that the receiver of a connection was bounded to last.
    pub(super) fn window(&self, cookie: u64) -> Option<u64> {
        self.windows.get(&cookie).copied().map(u64::from)
    }

    /// Bounds the data in flight of a connection with segments of `segment`, at the next [`apply`](Self::apply). No pace ends one
    /// that there was.
    pub(super) fn bound(
        &mut self,
        cookie: u64,
        end: FlowEnd,
        window: Bytes,
        segment: u32,
        rate: Option<Rate>,
    ) {
        let settings = self.pending.entry(cookie).or_default();
        let segment = u64::from(segment.max(1));
        let bytes = window.get().max(segment);
        let at_most = |number: u64, most: u32| u32::try_from(number).unwrap_or(most).min(most);
        match end {
            FlowEnd::Receiver => {
                let bound = at_most(bytes, NO_WINDOW);
                settings.receive_window = Some(bound);
                if window == UNBOUNDED {
                    self.windows.remove(&cookie);
                } else {
                    self.windows.insert(cookie, bound);
                }
            }
            FlowEnd::Sender => {
                settings.window_cap = Some(at_most(bytes / segment, NO_CAP));
                let pace = rate.filter(|_| window != UNBOUNDED);
                settings.pacing_rate =
                    Some(pace.map_or(NO_PACE, |rate| at_most(rate.bits_per_sec() / 8, NO_PACE - 1).max(1)));
            }
        }
    }

    /// What has to be written down before the next [`apply`](Self::apply): what connections have that were not bounded before.
    pub(super) fn news(&self, connections: &[Connection]) -> Vec<Entry> {
        let is_new = |connection: &&Connection| {
            let Connection { cookie, .. } = connection;
            self.pending.contains_key(cookie) && !self.before.contains_key(cookie)
        };
        let entry =
            |connection: &Connection| Entry::Bound { cookie: connection.cookie, before: has(connection) };
        connections.iter().filter(is_new).map(entry).collect()
    }

    /// Entries of all that is bounded.
    pub(super) fn all(&self) -> impl Iterator<Item = Entry> {
        self.before.iter().map(|(cookie, before)| Entry::Bound { cookie: *cookie, before: before.clone() })
    }

    /// Sets what is to be set. Windows of connections that are followed are set by their own segments, all else in one pass over
    /// the connections. `news` is written down.
    pub(super) fn apply(
        &mut self,
        tcp: &mut HostTcp,
        news: &[Entry],
        following: impl Fn(u64) -> Following,
    ) -> Result<(), NoProgram> {
        let pending = std::mem::take(&mut self.pending);
        for entry in news {
            if let Entry::Bound { cookie, before } = entry {
                self.before.insert(*cookie, before.clone());
            }
        }
        let mut others = BTreeMap::new();
        for (cookie, mut settings) in pending {
            let Some(before) = self.before.get(&cookie) else { continue };
            // One that is let go is set once, and then left to the kernel.
            let following = following(cookie);
            match settings.receive_window.filter(|_| following != Following::No) {
                Some(NO_WINDOW) => {
                    tcp.leave_window(cookie)?;
                    self.kept.remove(&cookie);
                }
                Some(window) => {
                    tcp.set_window(cookie, window)?;
                    self.kept.insert(cookie);
                    settings.receive_window = Some(window).filter(|_| following == Following::Soon);
                }
                None => {}
            }
            if settings != Settings::default() {
                others.insert(cookie, within(settings, before));
            }
        }
        set(tcp, others)
    }

    /// Drops what is to be set.
    pub(super) fn drop_pending(&mut self) {
        self.pending.clear();
    }

    /// Forgets connections that are gone.
    pub(super) fn keep(&mut self, tcp: &mut HostTcp, connections: &[Connection]) {
        if !self.before.is_empty() {
            let live: BTreeSet<u64> = connections.iter().map(|connection| connection.cookie).collect();
            self.before.retain(|cookie, _| live.contains(cookie));
            self.windows.retain(|cookie, _| live.contains(cookie));
            for gone in self.kept.difference(&live) {
                // Ignore a failure: a full map evicts the entry that was used least recently.
                let _ = tcp.leave_window(*gone);
            }
            self.kept.retain(|cookie| live.contains(cookie));
        }
    }

    /// Gives all connections back what they had.
    pub(super) fn give_back(&mut self, tcp: &mut HostTcp) -> Result<(), NoProgram> {
        self.pending.clear();
        let kept = std::mem::take(&mut self.kept);
        let left = kept.iter().map(|cookie| tcp.leave_window(*cookie)).fold(Ok(()), Result::and);
        let before = std::mem::take(&mut self.before);
        left.and(set(tcp, before.iter().map(|(cookie, before)| (*cookie, back(before))).collect()))
    }
}

/// What a program has set itself bounds on.
fn within(settings: Settings, before: &Before) -> Settings {
    let own = before.pacing_rate.and_then(|rate| u32::try_from(rate).ok()).unwrap_or(NO_PACE);
    Settings {
        window_cap: settings.window_cap.map(|cap| cap.min(before.window_cap)),
        pacing_rate: settings.pacing_rate.map(|pace| pace.min(own)),
        ..settings
    }
}

/// Applies to each connection its own settings, then stops managing it.
fn set(tcp: &mut HostTcp, all: BTreeMap<u64, Settings>) -> Result<(), NoProgram> {
    if all.is_empty() {
        return Ok(());
    }
    for (cookie, settings) in &all {
        tcp.set(*cookie, settings)?;
    }
    tcp.look()?;
    all.keys().try_for_each(|cookie| tcp.leave(*cookie))
}

/// What a connection has, or had before it was set when it began.
fn has(connection: &Connection) -> Before {
    let now = || Before {
        control: connection.control.clone(),
        least_timeout: connection.least_timeout,
        window_cap: connection.window_cap,
        pacing_rate: connection.pacing_rate,
        receive_window: None,
    };
    Before {
        receive_window: Some(connection.receive_window),
        ..connection.before.clone().unwrap_or_else(now)
    }
}

/// What to set on a bounded connection so that it has what it had.
pub(super) fn back(before: &Before) -> Settings {
    let rate = before.pacing_rate.and_then(|rate| u32::try_from(rate).ok());
    Settings {
        window_cap: Some(before.window_cap.min(NO_CAP)),
        pacing_rate: Some(rate.unwrap_or(NO_PACE)),
        receive_window: before.receive_window.map(|window| window.min(NO_WINDOW)),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(end: FlowEnd, window: Bytes, rate: Option<Rate>) -> Settings {
        let mut bounds = Bounds::default();
        bounds.bound(7, end, window, 1448, rate);
        bounds.pending.remove(&7).expect("pending")
    }

    #[test]
    fn a_sender_has_a_cap_and_a_pace_and_a_receiver_a_window() {
        let rate = Rate::from_bits_per_sec(8_000_000);
        let sender = bounded(FlowEnd::Sender, Bytes::new(14_480), Some(rate));
        assert_eq!(
            (sender.window_cap, sender.pacing_rate, sender.receive_window),
            (Some(10), Some(1_000_000), None)
        );
        assert_eq!(bounded(FlowEnd::Sender, Bytes::ZERO, None).window_cap, Some(1), "a segment at least");
        let receiver = bounded(FlowEnd::Receiver, Bytes::new(20_000), None);
        assert_eq!((receiver.window_cap, receiver.receive_window), (None, Some(20_000)));
    }

    #[test]
    fn what_is_let_go_has_no_bound() {
        let free = bounded(FlowEnd::Sender, UNBOUNDED, None);
        assert_eq!((free.window_cap, free.pacing_rate), (Some(NO_CAP), Some(NO_PACE)));
        assert_eq!(bounded(FlowEnd::Receiver, UNBOUNDED, None).receive_window, Some(NO_WINDOW));
    }

    #[test]
    fn a_program_that_paces_itself_does_so_on() {
        let before = Before { pacing_rate: Some(500_000), window_cap: 20, ..Before::default() };
        let fast = bounded(FlowEnd::Sender, Bytes::new(144_800), Some(Rate::from_bits_per_sec(80_000_000)));
        let slow = bounded(FlowEnd::Sender, Bytes::new(14_480), Some(Rate::from_bits_per_sec(800_000)));
        let set = |settings| {
            let Settings { window_cap, pacing_rate, .. } = within(settings, &before);
            (window_cap, pacing_rate)
        };
        assert_eq!(set(fast), (Some(20), Some(500_000)));
        assert_eq!(set(slow), (Some(10), Some(100_000)));
        assert_eq!(set(bounded(FlowEnd::Sender, UNBOUNDED, None)), (Some(20), Some(500_000)));
    }

    #[test]
    fn a_program_gets_back_the_pace_that_it_had() {
        let before = Before { pacing_rate: Some(500_000), window_cap: u32::MAX, ..Before::default() };
        let back = back(&before);
        assert_eq!(
            (back.pacing_rate, back.window_cap, back.receive_window),
            (Some(500_000), Some(NO_CAP), None)
        );
    }
}

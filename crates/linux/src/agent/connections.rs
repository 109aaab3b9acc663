//! The connections of a host, as its agent and the lab measure and bound them.

use std::collections::BTreeMap;

use bandmaster_core::control::FlowEnd;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Bytes, Rate};

use super::bounds::{Bounds, Following};
use super::journal::Entry;
use crate::kernel::NoProgram;
use crate::kernel::tcp::{Connection, HostTcp};
use crate::timing::{RoundTrip, WindowTiming};

/// A connection that has carried no more segments than these in a direction is no flow to be bounded: its first window was
/// enough. As in `bpf/tcp.c`.
pub(super) const FIRST_SEGMENTS: u32 = 10;

/// Since when the kernel has not shown the connections, as when memory is short or a table changes while it is read.
#[derive(Default)]
pub(super) struct Blind(Option<Time>);

impl Blind {
    /// Then the agent ends, and what it set with it: nobody knows any more whether settings do good.
    pub(super) const LIMIT: Span = Span::from_secs(2);

    /// A look at `now` failed or did not. Whether all have failed for [`LIMIT`](Self::LIMIT).
    pub(super) fn is_too_long(&mut self, failed: bool, now: Time) -> bool {
        self.0 = failed.then(|| self.0.unwrap_or(now));
        self.0.is_some_and(|since| now.since(since) >= Self::LIMIT)
    }
}

/// What is known of the connections of a network namespace.
#[derive(Default)]
pub(crate) struct Connections {
    /// As of the last look, by cookie.
    all: Vec<Connection>,
    bounds: Bounds,
    /// By cookie: receivers without timestamps.
    untimed: BTreeMap<u64, WindowTiming>,
}

impl Connections {
    /// As of the last look, by cookie.
    pub(super) fn all(&self) -> &[Connection] {
        &self.all
    }

    /// What they are bounded to.
    pub(super) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// A connection as of the last look.
    pub(crate) fn get(&self, cookie: u64) -> Option<&Connection> {
        self.place(cookie).ok().map(|at| &self.all[at])
    }

    fn place(&self, cookie: u64) -> Result<usize, usize> {
        self.all.binary_search_by_key(&cookie, |connection| connection.cookie)
    }

    /// Looks at them, from within their namespace. Those that are gone are forgotten.
    pub(crate) fn look(&mut self, tcp: &mut HostTcp) -> Result<(), NoProgram> {
        self.take(tcp.look()?);
        self.bounds.keep(tcp, &self.all);
        Ok(())
    }

    /// These are there.
    pub(super) fn take(&mut self, all: Vec<Connection>) {
        self.all = all;
        self.all.sort_unstable_by_key(|connection| connection.cookie);
    }

    /// Windows of receivers without timestamps tell round-trip times. The look was `now`.
    pub(crate) fn time_windows(&mut self, now: Time) {
        let Self { all, bounds, untimed } = self;
        untimed.retain(|cookie, _| bounds.window(*cookie).is_some());
        for connection in all.iter().filter(|connection| !connection.has_timestamps()) {
            if let Some(window) = bounds.window(connection.cookie) {
                untimed.entry(connection.cookie).or_default().look(now, window, connection.received);
            }
        }
    }

    /// Takes in what the kernel tells of one between two looks.
    pub(super) fn note(&mut self, told: &Connection) {
        match self.place(told.cookie) {
            Ok(at) if told.carries => {
                let before = self.all[at].before.take();
                self.all[at] = Connection { before, ..told.clone() };
            }
            Ok(at) => self.all[at].carries = false,
            Err(at) if told.carries => self.all.insert(at, told.clone()),
            Err(_) => {}
        }
    }

    /// Payload bytes of a connection that have arrived at the `end` of its data that is not here, or here, and its round-trip
    /// times.
    pub(crate) fn measured(&self, connection: &Connection, end: FlowEnd) -> (u64, RoundTrip) {
        let Connection { srtt, min_rtt, last_rtt, .. } = *connection;
        match end {
            FlowEnd::Sender => {
                (connection.acknowledged, RoundTrip { smoothed: srtt, least: min_rtt, last: last_rtt })
            }
            FlowEnd::Receiver => {
                let rtt = RoundTrip {
                    smoothed: self.receivers_rtt(connection),
                    // Its handshake has one measurement, perhaps from before a queue that all others saw.
                    least: connection.least_receiver_rtt.into_iter().chain(min_rtt).min(),
                    last: connection.last_receiver_rtt,
                };
                (connection.received, rtt)
            }
        }
    }

    fn receivers_rtt(&self, connection: &Connection) -> Option<Span> {
        if connection.has_timestamps() {
            return connection.receiver_rtt.or(connection.srtt);
        }
        self.untimed.get(&connection.cookie).copied().unwrap_or_default().rtt(connection.srtt)
    }

    /// Bounds the data in flight of a connection with segments of `segment`, when all have spoken.
    pub(crate) fn bound(
        &mut self,
        cookie: u64,
        end: FlowEnd,
        window: Bytes,
        segment: u32,
        rate: Option<Rate>,
    ) {
        self.bounds.bound(cookie, end, window, segment, rate);
    }

    /// Something is to be bounded.
    pub(crate) fn waits(&self) -> bool {
        self.bounds.pending().next().is_some()
    }

    /// Sets what is to be set, also on connections that no look has shown, from within their namespace. Nothing is written down.
    pub(crate) fn set(&mut self, tcp: &mut HostTcp) -> Result<(), NoProgram> {
        if self.bounds.pending().any(|cookie| self.get(cookie).is_none()) {
            self.look(tcp)?;
        }
        let news = self.news();
        self.apply(tcp, &news)
    }

    /// What has to be written down before the next [`apply`](Self::apply).
    pub(super) fn news(&self) -> Vec<Entry> {
        self.bounds.news(&self.all)
    }

    /// Sets what is to be set, of which the `news` are written down.
    pub(super) fn apply(&mut self, tcp: &mut HostTcp, news: &[Entry]) -> Result<(), NoProgram> {
        let Self { all, bounds, .. } = self;
        let following = |cookie| {
            let place = all.binary_search_by_key(&cookie, |connection| connection.cookie);
            place.map_or(Following::No, |at| following(&all[at]))
        };
        bounds.apply(tcp, news, following)
    }

    /// Drops what is to be set.
    pub(super) fn drop_pending(&mut self) {
        self.bounds.drop_pending();
    }

    /// Gives all connections back what they had.
    pub(super) fn give_back(&mut self, tcp: &mut HostTcp) -> Result<(), NoProgram> {
        self.bounds.give_back(tcp)
    }
}

/// The program keeps windows of connections that have carried more than a first window.
fn following(connection: &Connection) -> Following {
    let is_flow = |end| has_carried(connection, end, FIRST_SEGMENTS);
    match connection.followed {
        false => Following::No,
        true if is_flow(FlowEnd::Sender) || is_flow(FlowEnd::Receiver) => Following::Yes,
        true => Following::Soon,
    }
}

/// Whether a connection has carried more than so many segments in a direction.
pub(super) fn has_carried(connection: &Connection, end: FlowEnd, segments: u32) -> bool {
    match end {
        FlowEnd::Sender => connection.data_segments > segments,
        FlowEnd::Receiver => connection.received > u64::from(segments) * u64::from(connection.came_mss),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_may_fail_now_and_then() {
        let mut blind = Blind::default();
        let mut look = |millis, failed| blind.is_too_long(failed, Time::ZERO + Span::from_millis(millis));
        assert!(
            ![(0, true), (1900, true), (1950, false), (2000, true), (3900, true)]
                .map(|(at, failed)| look(at, failed))
                .contains(&true)
        );
        assert!(look(4000, true));
    }
}

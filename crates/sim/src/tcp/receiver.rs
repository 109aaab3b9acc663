//! The receiving end: reassembly, acknowledgements, SACK blocks, flow control.

use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Bytes, Rate};

use super::multipath::Share;
use super::rtt::{RttEstimator, RttRange};
use super::{Profile, timestamp};
use crate::events::Event;
use crate::net::{Net, Timer};
use crate::packet::{Packet, flag};

/// The receiving end of a flow.
#[derive(Default)]
pub(crate) struct Receiver {
    flow: u32,
    /// First hop of the way back.
    route: u32,
    /// Next offset expected.
    next: u64,
    /// Right edge of the window as the sender knows it.
    edge: u64,
    /// Segments not yet acknowledged.
    unacknowledged: u8,
    generation: u8,
    delayed_ack: Timer,
    /// TS.Recent of RFC 7323.
    recent_timestamp: u32,
    extras: Option<Box<Extras>>,
    /// RFC 3168: echo congestion until CWR arrives.
    echo_congestion: bool,
    /// Offset after the FIN; before it is known, more than any.
    end: u64,
    /// When everything had arrived; before, after all time.
    finished_at: Time,
    opened: bool,
}

/// What a receiver does without as long as all arrives in order and no scheme asks.
#[derive(Default)]
struct Extras {
    /// Received beyond `next`, most recently changed first (RFC 2018 section 4).
    islands: Vec<(u64, u64)>,
    /// The segment that has come again, for the acknowledgement that is due (RFC 2883).
    duplicate: Option<(u64, u64)>,
    /// Round-trip times, where a scheme looks at them.
    rtt: RttEstimator,
    range: RttRange,
    /// A segment that the sender answers at once.
    asked: Option<Asked>,
    /// A scheme's bound on the window.
    cap: Option<u64>,
    credit: Option<Credit>,
    /// Bytes that a slow application has read.
    reader: Option<Reader>,
    /// The window field of the last segment that came, where a scheme has one.
    field: Option<u32>,
    /// A subflow of multipath TCP hands its data over.
    share: Option<Share>,
}

/// The segment whose answer gives a round-trip time.
#[derive(Clone, Copy)]
struct Asked {
    at: Time,
    /// It was sent again: the answer may be to either (Karn).
    again: bool,
    /// It was the SYN, which the first data answer too.
    is_syn: bool,
}

/// The right edge moves on at a scheme's rate, a segment at a time.
struct Credit {
    rate: Rate,
    /// Right edge that credit has paid for.
    granted: u64,
    timer: Timer,
}

struct Reader {
    rate: Rate,
    read: u64,
    timer: Timer,
}

impl Receiver {
    pub(crate) fn new(flow: u32, route: u32, profile: &Profile) -> Self {
        let extras = profile.settings.read_rate.map(|rate| {
            let reader = Some(Reader { rate, read: 0, timer: Timer::default() });
            Box::new(Extras { reader, ..Extras::default() })
        });
        Self { flow, route, extras, end: u64::MAX, finished_at: Time::MAX, ..Self::default() }
    }

    /// Makes this the receiver of a subflow.
    pub(crate) fn set_share(&mut self, share: Share) {
        self.extras().share = Some(share);
    }

    /// Makes this the receiver of a later connection with the same flow number.
    pub(crate) fn set_generation(&mut self, generation: u8) {
        self.generation = generation;
    }

    /// First hop of the way back.
    pub(crate) fn route(&self) -> u32 {
        self.route
    }

    /// From now on acknowledgements take another way.
    pub(crate) fn set_route(&mut self, route: u32) {
        self.route = route;
    }

    /// Payload bytes received in order.
    pub(crate) fn delivered(&self) -> u64 {
        // The FIN takes an offset of its own.
        if self.next >= self.end { self.end - 1 } else { self.next }
    }

    /// Round-trip times, where a scheme looks at them.
    pub(crate) fn rtt(&self) -> (RttEstimator, RttRange) {
        self.extras.as_ref().map_or_else(Default::default, |extras| (extras.rtt, extras.range))
    }

    /// When everything had arrived.
    pub(crate) fn finished_at(&self) -> Option<Time> {
        self.is_finished().then_some(self.finished_at)
    }

    fn is_finished(&self) -> bool {
        self.finished_at != Time::MAX
    }

    fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    fn has_credit(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.credit.is_some())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opened && !self.is_finished()
    }

    /// A segment has arrived.
    pub(crate) fn on_segment(&mut self, packet: &Packet, profile: &Profile, net: &mut Net) {
        if profile.echoes_window {
            self.extras().field = Some(packet.window);
        }
        if packet.flags & flag::RST != 0 {
            self.opened = false;
            self.unacknowledged = 0;
            self.delayed_ack.cancel();
            return;
        }
        if packet.flags & flag::SYN != 0 {
            self.opened = true;
            self.recent_timestamp = packet.ts_value;
            self.ask(true, profile, net.now);
            self.acknowledge(profile, net, flag::SYN | flag::ACK);
            return;
        }
        if profile.echoes_each {
            self.echo_each(packet, profile, net);
        } else if packet.is_ce() {
            self.echo_congestion = true;
        } else if packet.flags & flag::CWR != 0 {
            self.echo_congestion = false;
        }
        let fin = packet.flags & flag::FIN != 0;
        let width = match packet.payload {
            0 => 0,
            _ if profile.is_multipath => profile.mss,
            payload => u64::from(payload),
        };
        let (start, end) = (packet.seq, packet.seq + width + u64::from(fin));
        if start == end {
            if !packet.is_keep_alive && packet.seq >= self.next && self.take_answer(false, net.now) {
                return;
            }
            // RFC 9293 section 3.8.6.1: a probe, or the third segment of the handshake.
            if packet.is_keep_alive || packet.seq < self.next || self.edge <= self.next {
                self.acknowledge(profile, net, flag::ACK);
            }
            return;
        }
        if self.next == 0 && profile.has_schemes {
            self.take_answer(true, net.now);
        }
        if fin {
            self.end = end;
        }
        // RFC 7323 section 4.3. Also of a segment that came before, whose acknowledgement was lost: the timestamp of its first
        // copy would make the sender take the whole timeout for a round-trip time.
        let acknowledged = self.next.saturating_sub(u64::from(self.unacknowledged) * profile.mss);
        if start <= acknowledged && packet.ts_value.wrapping_sub(self.recent_timestamp) < 1 << 31 {
            self.recent_timestamp = packet.ts_value;
        }
        if end <= self.next || start >= self.edge.max(self.next + 1) {
            if profile.settings.dsack && end <= self.next {
                self.extras().duplicate = Some((start, end));
            }
            self.acknowledge(profile, net, flag::ACK);
            return;
        }
        if packet.ts_echo != 0 && profile.has_schemes {
            let sample = timestamp(net.now).wrapping_sub(packet.ts_echo);
            let sample = Span::from_micros(u64::from(sample));
            let extras = self.extras();
            extras.rtt.add(sample);
            extras.range.add(sample);
        }
        if profile.is_multipath
            && packet.payload > 0
            && let Some(share) = self.extras.as_ref().and_then(|extras| extras.share)
        {
            let shared = &mut net.multipath[share.connection];
            shared.map(share.subflow, start, packet.payload.into(), packet.sack[0]);
        }
        if start > self.next {
            if profile.settings.dsack && self.extras().islands.iter().any(|&(s, e)| s <= start && end <= e) {
                self.extras().duplicate = Some((start, end));
            }
            self.insert_island(start, end);
            self.acknowledge(profile, net, flag::ACK);
            return;
        }
        let is_first = self.next < u64::from(profile.settings.quick_acks) * profile.mss;
        let had_islands = self.extras.as_ref().is_some_and(|extras| !extras.islands.is_empty());
        self.next = self.next.max(end);
        if had_islands {
            self.join_islands();
        }
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        if self.end == self.next && !self.is_finished() {
            self.finished_at = net.now;
        }
        self.plan_read(profile, net);
        let completes = self.extras.as_ref().and_then(|extras| extras.share).is_some_and(|share| {
            net.multipath[share.connection].take_in_order(share.subflow, self.next, net.now)
        });
        let now_due = had_islands
            || is_first
            || self.is_finished()
            || completes
            || self.echo_congestion && !profile.echoes_each
            // The sender cannot send a second full segment: waiting for one would only cost the timeout.
            || (profile.settings.ack_at_window_end && !self.has_credit() && self.edge.saturating_sub(self.next) < profile.mss)
            || (!self.has_credit() && u32::from(self.unacknowledged) >= profile.settings.delayed_ack);
        if now_due {
            self.acknowledge(profile, net, flag::ACK);
        } else if !self.delayed_ack.is_set() {
            let deadline = net.now + profile.settings.delayed_ack_timeout;
            self.delayed_ack.set(deadline, Event::DelayedAck(self.flow), &mut net.events);
        }
    }

    /// Notes that a segment goes out whose answer gives a round-trip time, where nothing else does.
    fn ask(&mut self, is_syn: bool, profile: &Profile, now: Time) {
        if profile.has_schemes && !profile.settings.timestamps {
            let extras = self.extras();
            let again = extras.asked.is_some();
            extras.asked = Some(Asked { at: now, again, is_syn });
        }
    }

    /// A segment has arrived. True when it answers what was asked.
    fn take_answer(&mut self, is_data: bool, now: Time) -> bool {
        let Some(extras) = &mut self.extras else { return false };
        let Some(asked) = extras.asked.take_if(|asked| asked.is_syn || !is_data) else { return false };
        if !asked.again {
            let sample = now.since(asked.at);
            extras.rtt.add(sample);
            extras.range.add(sample);
        }
        true
    }

    /// Sends a keep-alive, unless timestamps tell the round-trip time or one is on its way.
    pub(crate) fn measure_rtt(&mut self, profile: &Profile, net: &mut Net) {
        let patience = |extras: &Extras| extras.rtt.rto(&profile.settings);
        let is_asked = self.extras.as_ref().is_some_and(|extras| {
            extras.asked.is_some_and(|asked| net.now.since(asked.at) < patience(extras))
        });
        if profile.settings.timestamps || is_asked || !self.is_open() {
            return;
        }
        self.ask(false, profile, net.now);
        net.send(Packet {
            hop: self.route,
            flow: self.flow,
            generation: self.generation,
            len: profile.ack_len(0),
            ack: self.next,
            window: (self.edge - self.next).min(u64::from(u32::MAX)) as u32,
            flags: flag::ACK,
            tos: profile.tos,
            is_keep_alive: true,
            reverse: true,
            ..Packet::default()
        });
    }

    /// RFC 8257 section 3.2: a change of the mark is acknowledged at once, with the mark of what came before.
    fn echo_each(&mut self, packet: &Packet, profile: &Profile, net: &mut Net) {
        if packet.payload == 0 || packet.is_ce() == self.echo_congestion {
            return;
        }
        if self.unacknowledged > 0 {
            self.acknowledge(profile, net, flag::ACK);
        }
        self.echo_congestion = packet.is_ce();
    }

    pub(crate) fn on_delayed_ack_timer(&mut self, profile: &Profile, net: &mut Net) {
        if self.delayed_ack.fires(Event::DelayedAck(self.flow), net) && self.unacknowledged > 0 {
            self.acknowledge(profile, net, flag::ACK);
        }
    }

    /// A scheme bounds the window; the right edge already offered stays.
    pub(crate) fn set_cap(&mut self, cap: Bytes) {
        let extras = self.extras();
        extras.cap = Some(cap.get());
        extras.credit = None;
    }

    /// A scheme lets the right edge move on at `rate`, at most `window` ahead of the data that arrived in order.
    pub(crate) fn set_credit(&mut self, rate: Rate, window: Bytes, profile: &Profile, net: &mut Net) {
        let event = Event::Credit(self.flow);
        let (flow, granted) = (self.flow, self.edge.max(self.next));
        let extras = self.extras();
        extras.cap = Some(window.get().max(profile.mss));
        match &mut extras.credit {
            Some(credit) => {
                // Credit earned so far stays: the rest of the interval is scaled to the new rate.
                let left = credit.timer.left(net.now).unwrap_or_default().as_secs_f64();
                let scale = credit.rate.bits_per_sec() as f64 / rate.bits_per_sec().max(1) as f64;
                let next = Span::from_secs_f64(left * scale).min(credit_interval(rate, profile));
                if rate != credit.rate || !credit.timer.is_set() {
                    credit.rate = rate;
                    credit.timer.set(net.now + next, event, &mut net.events);
                }
            }
            None => {
                let mut credit = Credit { rate, granted, timer: Timer::default() };
                // Spread the flows of a receiver over the interval: golden-ratio phases.
                let phase = u64::from(flow.wrapping_mul(0x9e37_79b9) >> 16);
                let interval = credit_interval(rate, profile);
                let first =
                    Span::from_nanos(((u128::from(interval.as_nanos()) * u128::from(phase)) >> 16) as u64);
                credit.timer.set(net.now + first, event, &mut net.events);
                extras.credit = Some(credit);
            }
        }
    }

    pub(crate) fn on_credit_timer(&mut self, profile: &Profile, net: &mut Net) {
        let is_finished = self.is_finished();
        let Some(extras) = &mut self.extras else { return };
        let Some(credit) = &mut extras.credit else { return };
        let event = Event::Credit(self.flow);
        if !credit.timer.fires(event, net) || is_finished {
            return;
        }
        credit.timer.set(net.now + credit_interval(credit.rate, profile), event, &mut net.events);
        let most = self.next + extras.cap.unwrap_or(u64::MAX);
        if credit.granted + profile.mss <= most {
            credit.granted = credit.granted.max(self.next) + profile.mss;
            self.acknowledge(profile, net, flag::ACK);
        } else if self.unacknowledged > 0 {
            self.acknowledge(profile, net, flag::ACK);
        }
    }

    pub(crate) fn on_read_timer(&mut self, profile: &Profile, net: &mut Net) {
        let Some(reader) = self.extras.as_mut().and_then(|extras| extras.reader.as_mut()) else { return };
        if !reader.timer.fires(Event::Read(self.flow), net) {
            return;
        }
        reader.read = (reader.read + profile.mss).min(self.next);
        self.plan_read(profile, net);
        // RFC 1122 section 4.2.3.3: a window update is worth it when it opens by a segment or half the buffer.
        let offered = self.edge.saturating_sub(self.next);
        let worth = (2 * profile.mss).min(profile.max_window() / 2);
        if !self.is_finished() && self.free(profile) >= offered + worth {
            self.acknowledge(profile, net, flag::ACK);
        }
    }

    fn plan_read(&mut self, profile: &Profile, net: &mut Net) {
        let Some(reader) = self.extras.as_mut().and_then(|extras| extras.reader.as_mut()) else { return };
        if reader.read < self.next && !reader.timer.is_set() {
            let unit = Bytes::new((self.next - reader.read).min(profile.mss));
            reader.timer.set(net.now + reader.rate.time_for(unit), Event::Read(self.flow), &mut net.events);
        }
    }

    /// Buffer space that an application's reading has left.
    fn free(&self, profile: &Profile) -> u64 {
        let reader = self.extras.as_ref().and_then(|extras| extras.reader.as_ref());
        let held = reader.map_or(0, |reader| self.next - reader.read);
        profile.max_window().saturating_sub(held)
    }

    fn acknowledge(&mut self, profile: &Profile, net: &mut Net, flags: u8) {
        let space = self.free(profile);
        let offer = match &self.extras {
            None => space,
            Some(extras) => match (&extras.credit, extras.cap) {
                (Some(credit), _) => space.min(credit.granted.saturating_sub(self.next)),
                (None, Some(cap)) => space.min(cap),
                (None, None) => space,
            },
        };
        // Silly window avoidance (RFC 1122 section 4.2.3.3): no offer of less than a segment of a small rest.
        let offer = if offer < profile.mss.min(profile.max_window() / 2) { 0 } else { offer };
        // A window in a SYN is not scaled; others are rounded up to the scale, as Linux does, so that the edge stays.
        let syn = flags & flag::SYN != 0;
        let scale = if syn { 1 } else { 1 << profile.window_shift };
        let most = if syn { 65_535 } else { 65_535 << profile.window_shift };
        let window = (self.edge.max(self.next + offer) - self.next).next_multiple_of(scale).min(most);
        self.edge = self.edge.max(self.next + window);
        let mut packet = Packet {
            hop: self.route,
            flow: self.flow,
            generation: self.generation,
            ack: self.next,
            window: window as u32,
            flags: flags | if self.echo_congestion { flag::ECE } else { 0 },
            tos: profile.tos,
            reverse: true,
            ..Packet::default()
        };
        if profile.settings.timestamps {
            packet.ts_value = timestamp(net.now);
            packet.ts_echo = self.recent_timestamp;
        }
        if profile.settings.sack
            && let Some(extras) = &mut self.extras
        {
            // RFC 2883: a duplicate comes first. It may lie below the acknowledgement.
            let duplicate = extras.duplicate.take();
            for &(start, end) in duplicate.iter().chain(&extras.islands).take(profile.max_sacks()) {
                packet.sack[usize::from(packet.sack_count)] =
                    (start.wrapping_sub(self.next) as u32, (end - start) as u32);
                packet.sack_count += 1;
            }
        }
        if let Some(extras) = &self.extras {
            // A field bounds the window itself, not the right edge: the sender takes it so.
            packet.window = packet.window.min(extras.field.unwrap_or(u32::MAX));
            if let Some(share) = extras.share {
                packet.seq = net.multipath[share.connection].data_edge();
            }
        }
        packet.len = if syn { profile.syn_len() } else { profile.ack_len(packet.sack_count) };
        self.unacknowledged = 0;
        self.delayed_ack.cancel();
        net.send(packet);
    }

    fn insert_island(&mut self, mut start: u64, mut end: u64) {
        let islands = &mut self.extras().islands;
        islands.retain(|&(s, e)| {
            let apart = e < start || s > end;
            if !apart {
                start = start.min(s);
                end = end.max(e);
            }
            apart
        });
        islands.insert(0, (start, end));
    }

    fn join_islands(&mut self) {
        // Islands never touch each other, so at most one continues the stream after each step.
        let Some(extras) = &mut self.extras else { return };
        while let Some(at) = extras.islands.iter().position(|&(s, _)| s <= self.next) {
            let (_, end) = extras.islands.remove(at);
            self.next = self.next.max(end);
        }
    }
}

fn credit_interval(rate: Rate, profile: &Profile) -> Span {
    rate.time_for(Bytes::new(profile.mss)).max(Span::from_micros(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandmaster_core::scenario::TcpSettings;

    fn receiver() -> Receiver {
        Receiver::new(0, 0, &Profile::new(TcpSettings::default(), 0, false, 14))
    }

    /// RFC 2018 section 4: the first block holds the segment that came last.
    #[test]
    fn islands_are_most_recent_first_and_merge() {
        let mut r = receiver();
        r.insert_island(2000, 3000);
        r.insert_island(6000, 7000);
        assert_eq!(r.extras().islands, [(6000, 7000), (2000, 3000)]);
        r.insert_island(3000, 4000);
        assert_eq!(r.extras().islands, [(2000, 4000), (6000, 7000)]);
        r.next = 2000;
        r.join_islands();
        assert_eq!((r.next, r.extras().islands.len()), (4000, 1));
    }
}

//! The sending end: its state, and what acknowledgements do to it.
//!
//! Loss detection is RFC 6675 with SACK; without it, duplicate acknowledgements stand for SACKed segments, which gives
//! RFC 6582's window inflation in terms of data in flight.

mod pacing;
mod probe;
mod rack;
mod rates;
mod recovery;
mod sending;
mod spurious;

use std::collections::VecDeque;

use bandmaster_core::scenario::{LossDetection, Recovery, RttSamples, TcpSettings};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Bytes, Rate};

use self::rack::{Found, Rack};
use self::rates::Rates;
use self::recovery::{Progress, Prr};
use self::spurious::{Spurious, Step};
use super::cc::{self, AckInfo, CongestionControl, Echo, FastRecovery, Window};
use super::multipath::Share;
use super::rtt::{RttEstimator, RttRange};
use super::scoreboard::{DUP_THRESH, Scoreboard};
use super::{Profile, timestamp};
use crate::net::{Net, Timer};
use crate::packet::{Packet, flag};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// Not yet started.
    #[default]
    Closed,
    /// Broken off: nothing more is sent or heard.
    Reset,
    SynSent,
    /// Established, nothing known to be lost.
    Open,
    /// Fast recovery until `recovery_point` is acknowledged.
    Recovery,
    /// After a timeout, until `recovery_point` is acknowledged.
    Loss,
}

/// Counts of a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SenderCounters {
    pub(crate) segments: u32,
    pub(crate) retransmits: u32,
    pub(crate) timeouts: u32,
}

impl SenderCounters {
    /// Adds those of another connection.
    pub(crate) fn add(&mut self, other: Self) {
        self.segments += other.segments;
        self.retransmits += other.retransmits;
        self.timeouts += other.timeouts;
    }
}

/// The sending end of a flow.
#[derive(Default)]
pub(crate) struct Sender {
    flow: u32,
    /// First hop of the way.
    route: u32,
    state: State,
    /// Next offset to be sent.
    next: u64,
    /// Offset after the last byte the application gives; `u64::MAX` for a flow without end.
    limit: u64,
    /// The application is silent (on/off sources).
    paused: bool,
    /// The FIN takes the offset `limit`.
    closing: bool,
    window: Window,
    /// Right edge that the receiver offers.
    edge: u64,
    /// What is outstanding, from `board.una` to `next`.
    board: Scoreboard,
    duplicates: u8,
    generation: u8,
    recovery_point: u64,
    /// The rescue retransmission (RFC 6675 rule 4) of this recovery is spent.
    rescued: bool,
    /// This recovery has had a partial acknowledgement.
    had_partial_ack: bool,
    prr: Prr,
    pub(crate) rtt: RttEstimator,
    backoff: u8,
    retransmit: Timer,
    /// Without timestamps: segment being timed (Karn).
    timed: Timed,
    echo: u32,
    send_cwr: bool,
    steering: Option<Box<Steering>>,
    control: Option<Box<dyn CongestionControl>>,
    pub(crate) counters: SenderCounters,
}

/// The segment that is timed; when none is, `sent` is after all time.
#[derive(Clone, Copy)]
struct Timed {
    offset: u64,
    sent: Time,
}

impl Timed {
    fn is_set(self) -> bool {
        self.sent != Time::MAX
    }
}

impl Default for Timed {
    fn default() -> Self {
        Self { offset: 0, sent: Time::MAX }
    }
}

/// What a connection does without as long as it is not paced, sees no marks and no scheme looks at it.
#[derive(Default)]
struct Steering {
    timer: Timer,
    next_send: Time,
    /// A scheme's bound on the window, and its rate.
    cap: Option<u64>,
    rate: Option<Rate>,
    range: RttRange,
    /// No second ECN reaction before this offset is acknowledged.
    reduced_until: u64,
    /// Until then the window falls by proportional rate reduction.
    is_reducing: bool,
    /// When everything was acknowledged last, where idle time matters.
    idle_since: Option<Time>,
    /// When each outstanding segment was first sent, where each acknowledgement gives a round-trip sample.
    sent: VecDeque<Time>,
    /// A subflow of multipath TCP gets its data from here.
    share: Option<Share>,
    /// Losses are found by time.
    rack: Option<Box<Rack>>,
    /// The congestion control steers by delivery rates.
    rates: Option<Box<Rates>>,
    /// Losses that were none are taken back.
    spurious: Option<Box<Spurious>>,
}

impl Sender {
    pub(crate) fn new(flow: u32, route: u32, size: Option<u64>, settings: &TcpSettings) -> Self {
        let mss = settings.mss.get();
        let by_time = settings.loss_detection == LossDetection::Rack && settings.sack;
        let takes_back = settings.sack && (settings.dsack || settings.f_rto);
        let control = cc::build(settings);
        let by_rate = control.as_ref().is_some_and(|control| control.is_rate_based());
        let steering = (by_time || by_rate || takes_back).then(|| {
            let rack = by_time.then(|| Box::new(Rack::new(settings)));
            let (rates, spurious) = (by_rate.then(Box::default), takes_back.then(Box::default));
            Box::new(Steering { rack, rates, spurious, ..Steering::default() })
        });
        Self {
            flow,
            route,
            steering,
            limit: size.unwrap_or(u64::MAX),
            closing: size.is_some(),
            window: Window { cwnd: u64::from(settings.first_window()) * mss, ssthresh: u64::MAX },
            control,
            ..Self::default()
        }
    }

    /// A subflow of multipath TCP: data comes by [`Sender::push_data`].
    pub(crate) fn subflow(flow: u32, route: u32, share: Share, settings: &TcpSettings) -> Self {
        let mut subflow = Self { limit: 0, ..Self::new(flow, route, None, settings) };
        subflow.steering.get_or_insert_default().share = Some(share);
        subflow
    }

    fn share(&self) -> Option<Share> {
        self.steering.as_ref().and_then(|steering| steering.share)
    }

    /// Opens the connection.
    pub(crate) fn open(&mut self, profile: &Profile, net: &mut Net) {
        self.state = State::SynSent;
        self.send_syn(profile, net);
    }

    /// Whether a subflow may send a new segment now.
    pub(crate) fn has_room(&mut self, profile: &Profile, net: &mut Net) -> bool {
        self.is_open()
            && !self.closing
            && !self.board.has_lost_pending()
            && (u64::from(self.in_flight(&profile.settings)) + 1) * profile.mss <= self.send_window(profile)
            && self.next + profile.mss <= self.edge
            && !self.must_wait_for_pace(profile, net)
    }

    /// A subflow sends a segment with `len` bytes of new data.
    pub(crate) fn push_data(&mut self, len: u64, profile: &Profile, net: &mut Net) {
        self.limit = self.next + profile.mss;
        if self.board.is_empty() {
            // It was to probe a closed window.
            self.retransmit.cancel();
        }
        self.send_new(len, profile, net);
    }

    /// Opens the connection unless it is open.
    pub(crate) fn open_once(&mut self, profile: &Profile, net: &mut Net) {
        if self.state == State::Closed {
            self.open(profile, net);
        }
    }

    /// The application stops: what has been handed over is still delivered, then the FIN goes out.
    pub(crate) fn close(&mut self, profile: &Profile, net: &mut Net) {
        self.limit = self.limit.min(self.next);
        self.closing = true;
        self.paused = false;
        self.transmit_if_open(profile, net);
    }

    /// The application has given `total` bytes in all up to now, and will give more when it `keeps_open`.
    pub(crate) fn give(&mut self, total: u64, keeps_open: bool, profile: &Profile, net: &mut Net) {
        self.limit = total;
        self.closing = !keeps_open;
        if self.is_open() {
            self.restart_after_idle(profile, net.now);
        }
        self.transmit_if_open(profile, net);
    }

    /// Breaks the connection off with a RST (RFC 9293 section 3.10.5).
    pub(crate) fn reset(&mut self, profile: &Profile, net: &mut Net) {
        if !matches!(self.state, State::Closed | State::Reset) {
            let mut packet = self.segment(self.next, 0, profile, net);
            packet.flags = flag::RST | flag::ACK;
            packet.tos = profile.tos;
            net.send(packet);
        }
        self.state = State::Reset;
        self.retransmit.cancel();
    }

    /// Turns an on/off source on or off.
    pub(crate) fn set_paused(&mut self, paused: bool, profile: &Profile, net: &mut Net) {
        self.paused = paused;
        if !paused && !matches!(self.state, State::Closed | State::SynSent) {
            self.restart_after_idle(profile, net.now);
            self.transmit(profile, net);
        }
    }

    /// RFC 5681 section 4.1.
    fn restart_after_idle(&mut self, profile: &Profile, now: Time) {
        let settings = &profile.settings;
        if settings.idle_restart
            && !self.has_rates()
            && self.board.is_empty()
            && self
                .steering
                .as_ref()
                .and_then(|s| s.idle_since)
                .is_some_and(|idle| now.since(idle) > self.rtt.rto(settings))
        {
            let restart = u64::from(settings.initial_window) * profile.mss;
            self.window.cwnd = self.window.cwnd.min(restart);
        }
    }

    pub(crate) fn set_cap(&mut self, cap: Bytes, profile: &Profile, net: &mut Net) {
        let steering = self.steering.get_or_insert_default();
        steering.cap = Some(cap.get());
        steering.rate = None;
        self.transmit_if_open(profile, net);
    }

    pub(crate) fn set_rate(&mut self, rate: Rate, window: Bytes, profile: &Profile, net: &mut Net) {
        let steering = self.steering.get_or_insert_default();
        steering.cap = Some(window.get().max(profile.mss));
        steering.rate = Some(rate);
        self.transmit_if_open(profile, net);
    }

    /// Least and last round-trip time, where a scheme looks at them.
    pub(crate) fn rtt_range(&self) -> RttRange {
        self.steering.as_ref().map_or_else(RttRange::default, |steering| steering.range)
    }

    pub(crate) fn cwnd(&self) -> u64 {
        self.window.cwnd
    }

    /// First hop of the way.
    pub(crate) fn route(&self) -> u32 {
        self.route
    }

    /// From now on segments take another way.
    pub(crate) fn set_route(&mut self, route: u32) {
        self.route = route;
    }

    /// Payload bytes acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.board.una.min(self.limit)
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed | State::SynSent | State::Reset) && !self.is_done()
    }

    /// Makes this the sender of a later connection with the same flow number.
    pub(crate) fn set_generation(&mut self, generation: u8) {
        self.generation = generation;
    }

    pub(crate) fn generation(&self) -> u8 {
        self.generation
    }

    /// Everything is acknowledged, the end included.
    pub(crate) fn is_done(&self) -> bool {
        self.closing && self.board.una > self.limit
    }

    fn transmit_if_open(&mut self, profile: &Profile, net: &mut Net) {
        if self.is_open() {
            self.transmit(profile, net);
        }
    }

    // ------------------------------------------------------------------------------------------ acknowledgements

    /// A segment from the receiver has arrived.
    pub(crate) fn on_ack(&mut self, packet: &Packet, profile: &Profile, net: &mut Net) {
        if packet.flags & flag::SYN != 0 {
            self.on_syn_ack(packet, profile, net);
            return;
        }
        if packet.is_keep_alive {
            if !matches!(self.state, State::Closed | State::Reset) {
                net.send(self.segment(self.next, 0, profile, net));
            }
            return;
        }
        if packet.ack < self.board.una
            || packet.ack > self.next
            || matches!(self.state, State::Closed | State::Reset)
        {
            return;
        }
        self.echo = packet.ts_value;
        if profile.echoes_window {
            self.take_field(packet, profile, net);
        }
        let advanced = packet.ack - self.board.una;
        let mut edge = packet.ack + u64::from(packet.window);
        if let Some(share) = self.share() {
            edge = self.subflow_edge(packet, net);
            let window = self.connection_window(packet, profile);
            net.multipath[share.connection].on_ack(share.subflow, packet.ack, packet.seq, window);
        }
        // RFC 9293 section 3.8.6: a receiver should not take its window back; Linux heeds one that closes it.
        let is_closed = packet.window == 0 && edge < self.edge;
        let moved = is_closed || edge > self.edge;
        self.edge = if is_closed { edge } else { self.edge.max(edge) };
        let before = self.delivered_segments();
        let reported = match profile.settings.dsack {
            true => Self::reported_duplicate(packet),
            false => None,
        };
        if self.probes() {
            let is_bare = advanced == 0 && !moved && packet.sack_count == 0;
            self.judge_probe(packet, is_bare, reported.map(|(_, end)| end), profile, net);
        }
        let limited = self.is_window_limited(profile);
        let prior_in_flight = self.has_rates().then(|| self.in_flight(&profile.settings));
        let (sample, repairs) = if advanced > 0 { self.advance(packet, profile, net) } else { (None, false) };
        let sacked_before = self.board.sacked;
        if packet.sack_count > 0 {
            self.take_sacks(packet, usize::from(reported.is_some()), profile, net.now);
        }
        if advanced > 0 {
            self.duplicates = 0;
        }
        // RFC 6675 section 2: with SACK, a duplicate is an acknowledgement that SACKs new octets, whatever else it does.
        // Without SACK, RFC 5681 section 2 decides.
        let is_duplicate = match profile.settings.sack {
            true => self.board.sacked > sacked_before,
            false => advanced == 0 && !moved,
        };
        if is_duplicate {
            self.count_duplicate(packet, profile);
        }
        let newly_delivered = self.delivered_segments().wrapping_sub(before);
        if let Some((_, end)) = reported {
            self.take_duplicate(end);
        }
        let step = match self.state {
            State::Loss if profile.settings.f_rto => {
                let new = advanced > 0 || self.board.sacked > sacked_before;
                self.step_forward(packet, advanced > 0, new, profile)
            }
            _ => Step::Conventional,
        };
        let lost_before = self.board.lost();
        let mut found = Found::default();
        if self.has_rack() {
            found = self.find_losses_by_news(profile, net);
        } else if profile.settings.sack {
            self.board.mark_lost_by_sack(profile.mss);
        }
        if profile.settings.ecn
            && advanced > 0
            && let Some(control) = &mut self.control
        {
            let marked = packet.flags & flag::ECE != 0;
            control.on_echo(&Echo { acked: advanced, marked, next: self.next, una: self.board.una });
        }
        self.react_to_echo(packet, profile, net);
        let is_partial = advanced > 0
            && self.state == State::Recovery
            && self.board.una < self.recovery_point
            && self.fast_recovery() != FastRecovery::UntilProgress;
        self.update_state(advanced > 0, profile, net);
        // RFC 5681 section 4.3: the loss of a retransmission is another sign of congestion; Linux lowers the window for it after a
        // timeout.
        if found.again > 0 && self.state == State::Loss {
            self.enter_recovery(profile, net);
        }
        let is_ns3 = profile.settings.recovery == Recovery::PrrNs3;
        // Where ns-3 neither grows nor restarts the timer.
        let is_disordered = is_duplicate && self.state == State::Open && is_ns3;
        if let Some(prior_in_flight) = prior_in_flight {
            let newly_lost = (self.board.lost() + found.again).saturating_sub(lost_before);
            let counts = (prior_in_flight, newly_delivered, newly_lost);
            self.steer_by_rate(counts, sample, profile, net.now);
        } else if self.state == State::Recovery {
            if profile.settings.recovery != Recovery::Rfc6675 {
                let is_safe = advanced > 0 && self.board.lost() <= lost_before && found.segments == 0;
                let progress = Progress { is_safe, repairs };
                self.apply_prr(newly_delivered, progress, profile);
                if is_ns3 && is_partial && is_duplicate {
                    // Once as a duplicate, once as a partial acknowledgement.
                    self.apply_prr(newly_delivered, progress, profile);
                }
            }
            if is_partial && profile.settings.partial_ack_sends && !self.board.head_is_retransmitted() {
                self.answer_partial_ack(profile, net);
            }
        } else if self.is_reducing() {
            self.reduce_further(newly_delivered, profile);
        } else if advanced > 0
            && !is_disordered
            && (limited || !profile.settings.cwnd_validation)
            && self.reduced_until() <= self.board.una
        {
            // Segments that SACK reported earlier have been answered then.
            self.grow(advanced.min(u64::from(newly_delivered) * profile.mss), sample, profile, net);
        }
        if advanced > 0 || moved {
            // RFC 6298 section 5: the backed-off timeout stands until there is a new measurement (Karn).
            if advanced == 0 || sample.is_some() {
                self.backoff = 0;
            }
            // RFC 6582 section 4: of partial acknowledgements the first restarts an impatient timer.
            let keeps = is_partial && self.had_partial_ack && profile.settings.impatient_timer;
            if !keeps && !is_disordered {
                self.restart_timer(profile, net);
            }
            self.had_partial_ack |= is_partial;
        }
        if profile.settings.idle_restart && advanced > 0 && self.board.is_empty() {
            self.steering.get_or_insert_default().idle_since = Some(net.now);
        }
        if self.probes() && (advanced > 0 || self.board.sacked > 0) {
            self.plan_probe(profile, net);
        }
        self.note_path(advanced, net);
        if step == Step::SendNew && self.state == State::Loss {
            self.send_forward(profile, net);
        } else {
            self.transmit(profile, net);
        }
    }

    /// Right edge of this flow. A subflow whose connection shares one window has none of its own.
    fn subflow_edge(&self, packet: &Packet, net: &Net) -> u64 {
        match self.share() {
            Some(share) if net.multipath[share.connection].is_shared() => u64::MAX,
            _ => packet.ack + u64::from(packet.window),
        }
    }

    /// What an acknowledgement says of a connection's window. A scheme's field bounds the subflow only.
    fn connection_window(&self, packet: &Packet, profile: &Profile) -> u64 {
        if profile.echoes_window { profile.max_window() } else { u64::from(packet.window) }
    }

    fn count_duplicate(&mut self, packet: &Packet, profile: &Profile) {
        if self.board.is_empty() {
            return;
        }
        self.duplicates = self.duplicates.saturating_add(1);
        if !profile.settings.sack && packet.sack_count == 0 && self.board.sacked < self.board.outstanding() {
            self.board.sacked += 1;
        }
    }

    /// The congestion control answers an acknowledgement of so many bytes, with the round-trip time that it measured.
    fn grow(&mut self, acked: u64, sample: Option<Span>, profile: &Profile, net: &mut Net) {
        let mss = profile.mss;
        let (srtt, share) = (self.rtt.srtt(), self.share());
        let ack = AckInfo { now: net.now, acked, mss, srtt, sample, next: self.next, una: self.board.una };
        match (&mut self.control, share) {
            (Some(control), Some(Share { connection, subflow })) => {
                let paths = &mut net.multipath[connection].paths;
                control.on_subflow_ack(&mut self.window, &ack, paths, subflow);
            }
            (Some(control), None) => control.on_ack(&mut self.window, &ack),
            (None, _) => {}
        }
        if let Some(clamp) = profile.settings.cwnd_clamp {
            self.window.cwnd = self.window.cwnd.min(u64::from(clamp) * mss);
        }
    }

    /// Tells the other subflows of an acknowledgement of so many bytes.
    fn note_path(&self, acked: u64, net: &mut Net) {
        if let Some(share) = self.share() {
            let shared = &mut net.multipath[share.connection];
            shared.note(share.subflow, self.window.cwnd, self.rtt.srtt(), acked);
        }
    }

    /// A scheme's window field has returned. Below a segment it is served in turns: a segment in so many round-trips.
    fn take_field(&mut self, packet: &Packet, profile: &Profile, net: &Net) {
        let flow = self.flow;
        let srtt = self.rtt.srtt();
        self.edge = self.edge.max(packet.ack + profile.max_window());
        let steering = self.steering.get_or_insert_default();
        let field = u64::from(packet.window);
        steering.cap = Some(field);
        let was_in_turns = steering.rate.is_some();
        steering.rate = srtt.filter(|_| field < profile.mss).map(|srtt| {
            let rate = field.max(1) as f64 * 8.0 / srtt.as_secs_f64().max(1e-6);
            Rate::from_bits_per_sec_f64(rate)
        });
        if let Some(rate) = steering.rate.filter(|_| !was_in_turns) {
            // First turns are spread over the interval: golden-ratio phases.
            let phase = u64::from(flow.wrapping_mul(0x9e37_79b9) >> 16);
            let interval = rate.time_for(Bytes::new(profile.mss)).as_nanos();
            let wait = Span::from_nanos(((u128::from(interval) * u128::from(phase)) >> 16) as u64);
            steering.next_send = steering.next_send.max(net.now + wait);
        }
    }

    fn on_syn_ack(&mut self, packet: &Packet, profile: &Profile, net: &mut Net) {
        if self.state != State::SynSent {
            return;
        }
        self.state = State::Open;
        self.edge = self.subflow_edge(&Packet { ack: 0, ..*packet }, net);
        if let Some(share) = self.share() {
            let window = self.connection_window(packet, profile);
            net.multipath[share.connection].on_open(window);
        }
        self.echo = packet.ts_value;
        if packet.ts_echo != 0 || self.counters.timeouts == 0 {
            self.take_sample(packet, profile, net);
        }
        if profile.echoes_window {
            self.take_field(packet, profile, net);
        }
        self.open_rates(profile, net.now);
        // RFC 6928 section 2: a small start after more than one SYN was lost.
        if self.counters.timeouts > 1 {
            self.window.cwnd = profile.mss;
        }
        self.timed = Timed::default();
        self.backoff = 0;
        self.retransmit.cancel();
        self.note_path(0, net);
        // As Linux and ns-3 do at once, whatever there is to send.
        let ack = self.segment(0, 0, profile, net);
        net.send(ack);
        self.transmit(profile, net);
    }

    /// Segments that have left the network, cumulatively and modulo 2^32.
    fn delivered_segments(&self) -> u32 {
        (self.counters.segments - self.counters.retransmits)
            .wrapping_sub(self.board.outstanding())
            .wrapping_add(self.board.sacked)
    }

    /// Segments that count against the window.
    fn in_flight(&self, settings: &TcpSettings) -> u32 {
        let discounted = match self.state {
            // They answer segments that are marked lost and so do not count anyway.
            State::Loss if !settings.sack => 0,
            // RFC 5681 without limited transmit: duplicates release nothing before recovery.
            State::Open if !settings.limited_transmit && !settings.sack => 0,
            State::Open if !settings.limited_transmit => {
                self.board.sacked.saturating_sub(u32::from(self.duplicates.min(2)))
            }
            // RFC 3042: at most two segments, also when duplicates do not start a recovery (RFC 6582).
            State::Open if !settings.sack => self.board.sacked.min(DUP_THRESH - 1),
            _ => self.board.sacked,
        };
        self.board.pipe(discounted)
    }

    /// Takes the acknowledged segments off the queue; returns the round-trip time measured, and whether one of them had been
    /// sent again.
    fn advance(&mut self, packet: &Packet, profile: &Profile, net: &mut Net) -> (Option<Span>, bool) {
        let acked = packet.ack - self.board.una;
        // Only the last segment (and a lone FIN) may be short.
        let segments =
            if packet.ack == self.next { self.board.outstanding() } else { (acked / profile.mss) as u32 };
        self.note_delivered(0, segments as usize, profile, net.now);
        if let Some(rack) = self.rack() {
            rack.forget(segments as usize);
        }
        if let Some(rates) = self.rates() {
            rates.forget(segments as usize);
        }
        let any_retransmitted = self.board.acknowledge(packet.ack, segments, profile.settings.sack);
        if profile.settings.timestamps {
            let sample = (packet.ts_echo != 0).then(|| self.take_sample(packet, profile, net));
            return (sample, any_retransmitted);
        }
        let sent = match profile.settings.rtt_samples {
            RttSamples::EachAck => self.take_oldest_sent(segments),
            RttSamples::EachRoundTrip => self.take_timed(),
        };
        let Some(sent) = sent else { return (None, any_retransmitted) };
        let sample = net.now.since(sent);
        // Karn: no sample from an acknowledgement that may answer a retransmission.
        if any_retransmitted {
            return (None, true);
        }
        self.add_sample(sample, profile, net);
        (Some(sample), false)
    }

    /// When the segment that is timed was sent, once it is acknowledged.
    fn take_timed(&mut self) -> Option<Time> {
        let is_acknowledged = self.timed.is_set() && self.timed.offset < self.board.una;
        is_acknowledged.then(|| std::mem::take(&mut self.timed).sent)
    }

    /// When the oldest of so many acknowledged segments was first sent. It has waited for its acknowledgement the longest, as in
    /// Linux's `tcp_clean_rtx_queue` and ns-3's `EstimateRtt`.
    fn take_oldest_sent(&mut self, segments: u32) -> Option<Time> {
        let sent = &mut self.steering.as_mut()?.sent;
        sent.drain(..sent.len().min(segments as usize)).next()
    }

    fn take_sample(&mut self, packet: &Packet, profile: &Profile, net: &mut Net) -> Span {
        let sample = if packet.ts_echo != 0 {
            Span::from_micros(u64::from(timestamp(net.now).wrapping_sub(packet.ts_echo)))
        } else {
            net.now.since(self.timed.sent)
        };
        self.add_sample(sample, profile, net);
        sample
    }

    fn add_sample(&mut self, sample: Span, profile: &Profile, net: &mut Net) {
        self.rtt.add(sample);
        net.note_rtt(self.flow, sample);
        if let Some(rack) = self.rack() {
            rack.add_sample(sample);
        }
        if profile.has_schemes {
            self.steering.get_or_insert_default().range.add(sample);
        }
    }

    /// Takes the SACK blocks but the first `skipped`.
    fn take_sacks(&mut self, packet: &Packet, skipped: usize, profile: &Profile, now: Time) {
        let mut blocks = packet.sack;
        let blocks = &mut blocks[skipped..usize::from(packet.sack_count)];
        // The newest comes first; RACK takes what was delivered in ascending order, as Linux sorts the blocks.
        blocks.sort_unstable();
        for &mut (offset, len) in blocks {
            let start = (packet.ack + u64::from(offset)).max(self.board.una);
            let end = (start + u64::from(len)).min(self.next);
            if start < end {
                let place = |offset: u64| ((offset - self.board.una) / profile.mss) as usize;
                let (from, to) = (place(start), place(end + profile.mss - 1));
                self.note_delivered(from, to, profile, now);
                let keeps_resent = profile.settings.recovery == Recovery::PrrNs3;
                self.board.sack(start, end, profile.mss, keeps_resent);
            }
        }
    }
}

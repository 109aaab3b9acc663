//! The law: how much of a port's bandwidth-delay product and buffer each flow may fill.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::FlowId;
use crate::port::window::{AckVerdict, Segment};
use crate::time::{Span, Time};

/// Bytes on the link that are left free for each SYN of the last round trip: as many again may come unasked.
const BARE: u64 = 100;

/// Round trips between the segments of a flow whose window is closed.
const CLOSED: u64 = 64;

/// Round trips that a flow has to begin what it was given, while others wait; and that what is taken back counts on, for it
/// may be on its way.
const LEASE: u64 = 2;

/// Ageing times after which a flow is forgotten that has neither sent nor closed.
const FORGET: u64 = 10_000;

/// What the law is set to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Terms {
    /// C x RTT of the port, in bytes on the link: what is under way without a queue (D_L).
    pub pipe: u64,
    /// That round-trip time.
    pub rtt: Span,
    /// What may wait at the port, in bytes (beta Q).
    pub queue: u64,
    /// Segments of a turn: as many as the receiver acknowledges at once.
    pub turn: u64,
    /// Segments that a sender sends first.
    pub initial_window: u64,
    /// A flow that is silent for so long gives its share back.
    pub ageing: Span,
}

impl Terms {
    /// Right end of the band of Eq. 2, for one port.
    pub fn whole(&self) -> u64 {
        self.pipe.saturating_add(self.queue)
    }
}

/// The flows of a port, and what they hold.
#[derive(Clone, Debug)]
pub struct Law {
    terms: Terms,
    flows: BTreeMap<FlowId, Flow>,
    /// Flows between their SYN and their FIN (N_F), but for those that sleep.
    open: u64,
    /// Bytes on the link that senders may send, or have sent, and that no acknowledgement covers.
    outstanding: u64,
    /// The part of it that has not come to the port yet.
    expected: u64,
    /// What waits at the port, and when that was seen.
    held: u64,
    seen: Time,
    /// When data that it saw leaves the port, and its bytes: what of the queue is its flows' own.
    leaving: VecDeque<(Time, u64)>,
    /// The sum of these bytes.
    own: u64,
    /// When SYNs came, within the last round trip.
    syns: VecDeque<Time>,
    /// Flows whose turn has not come, the longest waiting first.
    waiting: VecDeque<FlowId>,
    /// Flows that sleep and hold nothing, in the order in which they are asked.
    asleep: VecDeque<FlowId>,
    /// Sleeping flows that have a turn, which asks them whether they have data.
    asked: u64,
    /// Bytes on the link that these hold.
    asking: u64,
    /// Flows that may send and have nothing under way, and since when.
    idle: BTreeSet<(Time, FlowId)>,
    /// Flows whose window was closed, and when what they had is free.
    closing: VecDeque<(Time, FlowId)>,
    /// For how long a sleeping flow is asked, and how many have not answered at that pace.
    pace: Span,
    unanswered: usize,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    mss: u64,
    frame: u64,
    scale: u64,
    /// Segments that its receiver acknowledges late, when no other follows.
    late: u64,
    /// Right edge that it was given, what has come of that, and what is acknowledged.
    edge: u64,
    came: u64,
    acked: u64,
    /// Data before this offset has left the port, although no acknowledgement that passed covers it: it is lost, or it or its
    /// acknowledgements took another way.
    gone: u64,
    /// Offset after the FIN.
    end: u64,
    is_open: bool,
    is_waiting: bool,
    /// It counts in N_F.
    is_counted: bool,
    /// In the line of those that sleep.
    is_asleep: bool,
    /// It sleeps and has a turn.
    is_asked: bool,
    /// Its window was closed; what it had is not free yet.
    is_closed: bool,
    /// Its entry in [`Law::idle`].
    idle_at: Option<Time>,
    /// When its data passed, or an acknowledgement of data that had passed.
    seen: Time,
    /// Since when the next acknowledgement is due: the last one passed, or data came after all was acknowledged, or after silence.
    heard: Time,
}

impl Flow {
    /// Bytes on the link of what it may send or has sent. Steps of more than a segment leave turns that are not whole, of
    /// which receivers acknowledge the last segment late: that one, which has passed the port, does not count.
    fn outstanding(&self) -> u64 {
        if self.is_asleep {
            return 0;
        }
        if self.scale <= self.mss {
            return self.edge.saturating_sub(self.settled()).div_ceil(self.mss) * self.frame;
        }
        let passed = self.came.saturating_sub(self.settled()) / self.mss;
        self.expected() + passed.saturating_sub(self.late) * self.frame
    }

    /// What it holds while it is asked.
    fn asking(&self) -> u64 {
        if self.is_asked { self.outstanding() } else { 0 }
    }

    /// Up to here nothing is under way.
    fn settled(&self) -> u64 {
        self.acked.max(self.gone)
    }

    /// It may send, but has nothing under way.
    fn is_idle(&self) -> bool {
        let has_grant = self.edge > self.came.max(self.acked);
        self.is_open && !self.is_waiting && has_grant && self.came <= self.settled()
    }

    /// Data up to `offset` passes.
    fn take(&mut self, now: Time, offset: u64, ageing: Span) {
        if self.came <= self.acked || now.since(self.seen) >= ageing {
            self.heard = now;
        }
        self.seen = now;
        let begin = offset.saturating_sub(self.mss);
        // Beyond its right edge, which another router has moved on: what lies between took that router's way. Or it sends
        // again what counts as gone.
        let is_again = self.gone > self.acked && offset <= self.gone;
        if begin > self.edge || is_again {
            self.gone = begin;
        }
        self.came = self.came.max(offset);
        self.edge = self.edge.max(offset);
        self.settle(now, ageing);
    }

    /// Data that no acknowledgement has covered for the ageing time counts as gone.
    fn settle(&mut self, now: Time, ageing: Span) {
        if self.came > self.settled() && now.since(self.heard) >= ageing {
            self.gone = self.came;
        }
    }

    /// What a window field in an acknowledgement of `offset` states of what it was given.
    fn left(&self, offset: u64) -> u64 {
        let left = self.edge - offset.min(self.edge);
        if self.scale <= self.mss { left } else { Segment::stated(left, self.mss, self.scale) }
    }

    /// From where its edges are counted: the begin, or what is acknowledged when a step of its field is more than a segment.
    fn base(&self, acked: u64) -> u64 {
        if self.scale <= self.mss { 0 } else { acked }
    }

    /// The part of it that is still to come.
    fn expected(&self) -> u64 {
        self.edge.saturating_sub(self.came.max(self.acked)).div_ceil(self.mss) * self.frame
    }
}

/// The least that a flow is given at once: a turn, or the step of its window field when that is more.
fn unit(turn: u64, mss: u64, scale: u64) -> u64 {
    let turn = turn * mss;
    if scale <= mss { turn } else { turn.next_multiple_of(scale) }
}

impl Law {
    /// Without flows.
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            flows: BTreeMap::new(),
            open: 0,
            outstanding: 0,
            expected: 0,
            held: 0,
            seen: Time::ZERO,
            leaving: VecDeque::new(),
            own: 0,
            syns: VecDeque::new(),
            waiting: VecDeque::new(),
            asleep: VecDeque::new(),
            asked: 0,
            asking: 0,
            idle: BTreeSet::new(),
            closing: VecDeque::new(),
            pace: terms.rtt * LEASE,
            unanswered: 0,
        }
    }

    /// `held` bytes on the link wait at the port.
    pub fn see(&mut self, now: Time, held: u64) {
        (self.held, self.seen) = (held, now);
        while self.syns.front().is_some_and(|at| now.since(*at) > self.terms.rtt) {
            self.syns.pop_front();
        }
        while let Some((_, bytes)) = self.leaving.front().filter(|(at, _)| *at <= now) {
            self.own -= bytes;
            self.leaving.pop_front();
        }
    }

    /// Of what [`Law::see`] has seen, `bytes` at the end are data of a flow.
    pub fn own(&mut self, bytes: u64) {
        self.own += bytes;
        self.leaving.push_back((self.seen + self.time_for(self.held), bytes));
    }

    /// Time that the port takes for so many bytes.
    fn time_for(&self, bytes: u64) -> Span {
        let nanos = u128::from(bytes) * u128::from(self.terms.rtt.as_nanos());
        Span::from_nanos((nanos / u128::from(self.terms.pipe.max(1))) as u64)
    }

    /// N_F.
    pub fn flows(&self) -> u64 {
        self.open
    }

    /// It knows no flow.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Bytes on the link that all flows together hold.
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Right end of the band of Eq. 2, for one port, less what packets without data need.
    pub fn budget(&self) -> u64 {
        self.terms.pipe.saturating_add(self.queue())
    }

    fn queue(&self) -> u64 {
        self.terms.queue.saturating_sub(BARE * self.syns.len() as u64).max(self.terms.queue / 4)
    }

    /// Balance factor (Eq. 1): the bytes that the queue holds and expects, relative to what it may hold.
    pub fn balance(&self) -> f64 {
        let fair = self.queue() as f64;
        ((self.held + self.expected) as f64 - fair) / fair.max(1.0)
    }

    /// A flow's window (Eq. 4 with beta so that the windows add up to the budget), in bytes on the link.
    pub fn share(&self) -> u64 {
        let kept = if self.asleep.is_empty() { 0 } else { self.for_asking() };
        self.budget().saturating_sub(kept.max(self.asking)) / self.open.max(1)
    }

    /// Bytes reserved for asking flows that sleep: a quarter of the queue.
    fn for_asking(&self) -> u64 {
        self.queue() / 4
    }

    /// The same in payload bytes of a flow.
    pub fn window(&self, mss: u64, frame: u64) -> u64 {
        (u128::from(self.share()) * u128::from(mss) / u128::from(frame.max(1))) as u64
    }

    /// What the window field of a segment says: a flow's window, of what others leave of the budget (Eqs. 1 and 5: who is
    /// over its fair queue gets no new window; what the flows' own windows fill is what Eq. 2 gave them). Below two
    /// thirds of a segment it is the share of the pipe alone: such senders have a segment each under way, which is more
    /// than the budget, in turns of the round trip that they know.
    pub fn field(&self, segment: &Segment) -> u64 {
        let others = self.held.saturating_sub(self.own);
        let of_flow = |bytes: u64| {
            let left = bytes.saturating_sub(others) / self.open.max(1);
            (u128::from(left) * u128::from(segment.mss) / u128::from(segment.frame.max(1))) as u64
        };
        let window = of_flow(self.budget());
        if window.saturating_mul(3) >= 2 * segment.mss {
            return window;
        }
        // Closed, but for a segment now and then, whose field tells when it is open again.
        of_flow(self.terms.pipe).max(segment.mss / CLOSED)
    }

    /// A segment of the sender passes.
    pub fn on_data(&mut self, now: Time, segment: &Segment) {
        if segment.rst {
            self.remove(segment.flow);
            return;
        }
        if segment.syn {
            self.remove(segment.flow);
            self.syns.push_back(now);
        }
        let Segment { flow, mss, frame, scale, .. } = *segment;
        // A flow that is not known was silent for too long, or is older than the program.
        let is_new = !self.flows.contains_key(&flow);
        if is_new {
            if segment.fin {
                return;
            }
            self.open += 1;
            let edge = if segment.syn { 0 } else { segment.offset };
            let entry = Flow {
                mss,
                frame,
                scale,
                late: self.terms.turn - 1,
                edge,
                came: edge,
                acked: edge.saturating_sub(mss),
                gone: 0,
                end: u64::MAX,
                is_open: true,
                is_waiting: false,
                is_counted: true,
                is_asleep: false,
                is_asked: false,
                is_closed: false,
                idle_at: None,
                seen: now,
                heard: now,
            };
            self.outstanding += entry.outstanding();
            self.flows.insert(flow, entry);
            return;
        }
        self.wake(flow);
        let ageing = self.terms.ageing;
        self.change(flow, |entry| {
            entry.take(now, segment.offset, ageing);
            if segment.fin {
                entry.end = segment.offset;
                entry.edge = segment.offset;
            }
        });
        if segment.fin
            && let Some(entry) = self.flows.get_mut(&flow)
            && std::mem::replace(&mut entry.is_open, false)
        {
            self.open -= 1;
        }
        self.note_idle(flow, now);
    }

    /// The flow has something to send. When it had nothing for it but a closed window, it waits for a turn.
    fn wake(&mut self, flow: FlowId) {
        let Some(entry) = self.flows.get(&flow).copied().filter(|entry| !entry.is_counted) else { return };
        self.open += 1;
        self.asked -= u64::from(entry.is_asked);
        (self.pace, self.unanswered) = (self.terms.rtt * LEASE, 0);
        if entry.is_asleep {
            self.waiting.push_back(flow);
        }
        self.change(flow, |entry| {
            (entry.is_counted, entry.is_asked) = (true, false);
            entry.is_waiting |= std::mem::take(&mut entry.is_asleep);
        });
    }

    /// Keeps [`Law::idle`] after a flow has changed.
    fn note_idle(&mut self, flow: FlowId, now: Time) {
        if let Some(entry) = self.flows.get_mut(&flow) {
            let is_idle = entry.is_idle() && !entry.is_closed;
            let after = is_idle.then_some(now);
            if let Some(before) = std::mem::replace(&mut entry.idle_at, after) {
                self.idle.remove(&(before, flow));
            }
            self.idle.extend(after.map(|at| (at, flow)));
        }
    }

    /// A segment of the receiver passes. Whose turn has not come is asked for by [`Law::release`].
    pub fn on_ack(&mut self, now: Time, segment: &Segment) -> AckVerdict {
        let Segment { flow, offset, .. } = *segment;
        // The receiver's end states the scale of its windows.
        self.change(flow, |entry| entry.scale = segment.scale);
        let Some(entry) = self.flows.get(&flow).copied() else {
            // It was silent for too long, or has ended: a turn, for a right edge that was given stays given.
            return AckVerdict::Window(unit(self.terms.turn, segment.mss, segment.scale));
        };
        if segment.rst || offset >= entry.end {
            self.remove(flow);
            return AckVerdict::Pass;
        }
        // Duplicates carry news of losses.
        let is_new = offset > entry.acked || segment.syn;
        // What did not pass here shows no data that does.
        let is_own = offset <= entry.came;
        if !is_own && (!entry.is_counted || entry.is_closed) {
            let turn = unit(self.terms.turn, segment.mss, segment.scale);
            let held = if entry.is_asked { turn } else { 0 };
            self.change(flow, |entry| {
                entry.acked = entry.acked.max(offset);
                entry.edge = entry.edge.max(offset + held);
            });
            return AckVerdict::Window(turn);
        }
        if is_new {
            self.wake(flow);
        }
        self.change(flow, |entry| {
            entry.heard = now;
            if is_own {
                entry.seen = now;
            }
            // It states again what was taken back.
            entry.is_closed = false;
            entry.acked = entry.acked.max(offset);
            // What went missing and was sent again may have been counted below.
            entry.edge = entry.edge.max(offset);
            // Less than a segment, which no field states any more: the sender had it with the segments before, and left it.
            if entry.came <= offset && entry.edge - offset < entry.mss && entry.left(offset) == 0 {
                entry.edge = offset;
            }
        });
        let turn = unit(self.terms.turn, entry.mss, entry.scale);
        let base = entry.base(offset);
        if entry.is_open {
            // In slow start a sender cannot use more.
            let usable = self.terms.initial_window * entry.mss + offset;
            let window = self.window(entry.mss, entry.frame).min(usable).max(turn);
            let most = base + (offset - base + window.min(segment.window)) / turn * turn;
            if self.waiting.is_empty() && !entry.is_asleep {
                self.give(flow, base, most);
            }
        }
        let left = self.flows.get(&flow).map_or(0, |entry| entry.left(offset));
        let asks = left < turn && is_new && entry.is_open;
        if asks
            && let Some(entry) = self.flows.get_mut(&flow)
            && !std::mem::replace(&mut entry.is_waiting, true)
        {
            self.waiting.push_back(flow);
        }
        self.note_idle(flow, now);
        // What no field states the sender has lost, but for what is on its way.
        if left == 0 && self.flows.get(&flow).is_some_and(|f| f.expected() > 0 && f.is_open && !f.is_closed) {
            self.close(flow);
        }
        // A sender knows nothing before its handshake; later it learns at once what has arrived.
        if asks && segment.syn { AckVerdict::Hold } else { AckVerdict::Window(left) }
    }

    /// The next flow whose window changes without an acknowledgement of its own: its turn has come; or it sleeps and is asked
    /// by a turn; or it did not use what others wait for, and its window is closed.
    pub fn release(&mut self) -> Option<(FlowId, u64)> {
        self.free();
        while self.waiting.front().is_some_and(|f| !self.flows.get(f).is_some_and(|f| f.is_waiting)) {
            self.waiting.pop_front();
        }
        while self.asleep.front().is_some_and(|f| !self.flows.get(f).is_some_and(|f| f.is_asleep)) {
            self.asleep.pop_front();
        }
        let next = self.waiting.front().copied();
        if let Some(flow) = self.asleep.front().copied().filter(|flow| next.is_none() || self.may_ask(*flow))
            && let Some(window) = self.turn(flow)
        {
            self.asleep.pop_front();
            self.asked += 1;
            self.settle(flow, |entry| (entry.is_asleep, entry.is_asked) = (false, true));
            return Some((flow, window));
        }
        if let Some(flow) = next
            && let Some(window) = self.turn(flow)
        {
            self.waiting.pop_front();
            self.settle(flow, |entry| (entry.is_waiting, entry.is_closed) = (false, false));
            return Some((flow, window));
        }
        let due = self.due()?;
        let &(_, flow) = self.idle.first().filter(|_| due <= self.seen)?;
        self.close(flow);
        Some((flow, 0))
    }

    /// A flow that sleeps may be asked although others wait: one always.
    fn may_ask(&self, flow: FlowId) -> bool {
        let Some(Flow { mss, frame, scale, .. }) = self.flows.get(&flow).copied() else { return false };
        let turn = unit(self.terms.turn, mss, scale).div_ceil(mss) * frame;
        self.asked == 0 || (self.asked + 1) * turn <= self.for_asking()
    }

    /// Gives the flow a turn, and answers its window, when there is room.
    fn turn(&mut self, flow: FlowId) -> Option<u64> {
        let entry = self.flows.get(&flow).copied()?;
        let turn = unit(self.terms.turn, entry.mss, entry.scale);
        let edge_from = |from: u64| {
            let base = entry.base(from);
            (base, base + ((from - base) / turn + 1) * turn)
        };
        // A turn begins at what is acknowledged, or behind data that has gone and would fill it.
        let is_filled = entry.settled() >= edge_from(entry.acked).1;
        let from = if is_filled { entry.settled() } else { entry.acked };
        let (base, most) = edge_from(from);
        if entry.is_open && entry.edge < most {
            self.give(flow, base, most);
        }
        let given = self.flows.get(&flow).copied().unwrap_or(entry);
        (!entry.is_open || given.edge >= most).then(|| given.left(from))
    }

    fn settle(&mut self, flow: FlowId, change: impl FnOnce(&mut Flow)) {
        self.change(flow, change);
        self.note_idle(flow, self.seen);
    }

    /// When the flow that has been idle for longest has to give back what it was given: nobody else may wait for it.
    fn due(&self) -> Option<Time> {
        let lease = if self.waiting.is_empty() { self.pace } else { self.terms.rtt * LEASE };
        let asking = self.waiting.len() + self.asleep.len();
        let (since, _) = self.idle.first().filter(|_| self.closing.len() < asking)?;
        Some(*since + lease)
    }

    /// Closes the window of a flow that has nothing under way.
    fn close(&mut self, flow: FlowId) {
        self.settle(flow, |entry| entry.is_closed = true);
        self.closing.push_back((self.seen + self.terms.rtt * LEASE, flow));
    }

    /// Frees what was taken back: nothing of it has come. The flow sleeps.
    fn free(&mut self) {
        let (now, ageing) = (self.seen, self.terms.ageing);
        while let Some((_, flow)) = self.closing.front().copied().filter(|(at, _)| *at <= self.seen) {
            self.closing.pop_front();
            if !self.flows.get(&flow).is_some_and(|entry| entry.is_closed) {
                continue;
            }
            self.change(flow, |entry| {
                entry.is_closed = false;
                entry.edge = entry.came.max(entry.acked);
                if now.since(entry.seen) >= ageing {
                    entry.gone = entry.came;
                }
                entry.is_asleep = entry.is_open && !entry.is_waiting && entry.came <= entry.settled();
            });
            if let Some(entry) = self.flows.get_mut(&flow)
                && entry.is_asleep
            {
                self.open -= u64::from(std::mem::take(&mut entry.is_counted));
                self.asleep.push_back(flow);
                if std::mem::take(&mut entry.is_asked) {
                    self.asked -= 1;
                    self.unanswered += 1;
                }
            }
            if self.unanswered > self.asleep.len() {
                (self.pace, self.unanswered) = ((self.pace * 2).min(self.terms.ageing), 0);
            }
        }
    }

    /// Answers flows that were silent for the ageing time and do not wait for a turn: their windows close, and they sleep. Data that
    /// was not acknowledged for as long counts no more, whoever sent it.
    pub fn age(&mut self, now: Time) -> Vec<FlowId> {
        let ageing = self.terms.ageing;
        let unheard = self.flows.iter().filter(|(_, f)| f.came > f.settled() && now.since(f.heard) >= ageing);
        let unheard: Vec<FlowId> = unheard.map(|(flow, _)| *flow).collect();
        for flow in unheard {
            self.change(flow, |entry| entry.settle(now, ageing));
            self.note_idle(flow, now);
        }
        let silent = self.flows.iter().filter(|(_, f)| !f.is_waiting && now.since(f.seen) >= ageing);
        let silent: Vec<(FlowId, Flow)> = silent.map(|(flow, entry)| (*flow, *entry)).collect();
        let mut closed = Vec::new();
        for (flow, entry) in silent {
            let is_forgotten = now.since(entry.seen) >= ageing * FORGET;
            // It has ended, but for its last acknowledgement; or its handshake did not.
            let is_over = !entry.is_open || entry.edge == 0;
            if is_over || entry.is_asleep && is_forgotten {
                self.remove(flow);
            } else if !entry.is_asleep && !entry.is_closed && (!entry.is_asked || is_forgotten) {
                self.close(flow);
                closed.push(flow);
            }
        }
        closed
    }

    /// Forgets flows that were silent for the ageing time: with the field, no sender holds what it was given before.
    pub fn forget(&mut self, now: Time) {
        let silent = self.flows.iter().filter(|(_, f)| now.since(f.seen) >= self.terms.ageing);
        let silent: Vec<FlowId> = silent.map(|(flow, _)| *flow).collect();
        silent.into_iter().for_each(|flow| self.remove(flow));
    }

    /// When [`Law::release`] may have more, although no packet comes: when a window can be closed, or what was taken back is
    /// free, or, while nothing is under way, when what the queue holds has gone.
    pub fn retry(&self) -> Option<Time> {
        let is_still = !self.waiting.is_empty() && self.outstanding == 0;
        let gone = is_still.then(|| self.seen + self.time_for(self.held));
        let freed = self.closing.front().map(|(at, _)| *at);
        let next = gone.into_iter().chain(freed).chain(self.due()).min();
        next.map(|at| at.max(self.seen + Span::from_micros(1)))
    }

    /// Moves a flow's right edge towards `most`, to a whole number of its units from `base`, as far as the balance factor
    /// stays at 0 or below (Eq. 5) and the windows within Eq. 2.
    ///
    /// Whatever senders do, all that is expected may come at once: the queue holds it, unless that is less than D_L, below
    /// which the link idles (Eq. 2's left end).
    fn give(&mut self, flow: FlowId, base: u64, most: u64) {
        let of_queue = self.queue().max(self.terms.pipe).saturating_sub(self.held + self.expected);
        let room = of_queue.min(self.budget().saturating_sub(self.outstanding));
        let is_idle = self.held == 0 && self.outstanding == 0;
        let turn = self.terms.turn;
        let of_flow = self.queue().max(self.terms.pipe) / self.open.max(1);
        self.change(flow, |entry| {
            // Who has nothing to send keeps no more than its part of the queue from others.
            let unit = unit(turn, entry.mss, entry.scale);
            let least = unit.div_ceil(entry.mss) * entry.frame;
            let room = room.min(of_flow.max(least).saturating_sub(entry.expected()));
            // Edges lie at whole turns, so that receivers have nothing left to acknowledge later.
            let units = |edge: u64| edge.saturating_sub(base) / unit;
            let full = entry.edge.saturating_add(room / entry.frame * entry.mss);
            // A queue that holds no turn still takes one over an idle link.
            let given = units(full).max(units(entry.edge) + u64::from(is_idle));
            entry.edge = entry.edge.max((base + given * unit).min(most));
        });
    }

    fn change(&mut self, flow: FlowId, change: impl FnOnce(&mut Flow)) {
        if let Some(entry) = self.flows.get_mut(&flow) {
            let before = (entry.outstanding(), entry.expected(), entry.asking());
            change(entry);
            self.outstanding = self.outstanding - before.0 + entry.outstanding();
            self.expected = self.expected - before.1 + entry.expected();
            self.asking = self.asking - before.2 + entry.asking();
        }
    }

    fn remove(&mut self, flow: FlowId) {
        if let Some(entry) = self.flows.remove(&flow) {
            self.outstanding -= entry.outstanding();
            self.expected -= entry.expected();
            self.asking -= entry.asking();
            self.open -= u64::from(entry.is_open && entry.is_counted);
            self.asked -= u64::from(entry.is_asked);
            if let Some(since) = entry.idle_at {
                self.idle.remove(&(since, flow));
            }
            self.waiting.retain(|other| *other != flow);
            self.asleep.retain(|other| *other != flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MSS: u64 = 1448;
    const FRAME: u64 = 1502;

    fn terms() -> Terms {
        Terms {
            pipe: 20 * FRAME,
            rtt: Span::from_micros(24),
            queue: 40 * FRAME,
            turn: 2,
            initial_window: 10,
            ageing: Span::from_millis(10),
        }
    }

    fn segment(flow: u32, offset: u64) -> Segment {
        Segment {
            flow: FlowId(flow),
            syn: false,
            fin: false,
            rst: false,
            offset,
            window: 1 << 20,
            mss: MSS,
            frame: FRAME,
            scale: 1,
            paths: 1,
        }
    }

    fn syn(flow: u32) -> Segment {
        Segment { syn: true, window: 65_535, ..segment(flow, 0) }
    }

    /// The law with `flows` open flows.
    fn opened(flows: u32) -> (Law, Vec<AckVerdict>) {
        let mut law = Law::new(terms());
        (0..flows).for_each(|flow| law.on_data(Time::ZERO, &syn(flow)));
        let verdicts = (0..flows).map(|flow| law.on_ack(Time::ZERO, &syn(flow))).collect();
        (law, verdicts)
    }

    /// Eq. 4: 60 frames over three flows, but no more than a sender can use at first.
    #[test]
    fn shares_add_up_to_the_budget() {
        let (law, verdicts) = opened(3);
        assert_eq!(law.share(), (60 * FRAME - 300) / 3);
        assert_eq!(verdicts, [AckVerdict::Window(10 * MSS); 3]);
        let (mut law, verdicts) = opened(9);
        assert_eq!(law.share(), (60 * FRAME - 900) / 9);
        // 6.6 segments are three turns, up to what the queue holds of first grants.
        assert_eq!(verdicts[..], [AckVerdict::Window(4 * MSS); 9], "a ninth of the queue is 4.3 segments");
        assert_eq!((law.outstanding(), law.expected), (36 * FRAME, 36 * FRAME));
        // What a flow has acknowledged is neither in the queue nor to come: its window moves on, up to its part again.
        assert_eq!(law.on_ack(Time::ZERO, &segment(0, 4 * MSS)), AckVerdict::Window(4 * MSS));
        assert!(law.balance() <= 0.0);
    }

    /// What waits at the port, whosever it is, leaves no room for grants.
    #[test]
    fn a_full_queue_holds_grants_back() {
        let mut law = Law::new(terms());
        law.on_data(Time::ZERO, &syn(0));
        law.see(Time::ZERO, 38 * FRAME);
        assert_eq!(law.on_ack(Time::ZERO, &syn(0)), AckVerdict::Hold);
        assert_eq!(law.release(), None);
        // 38 frames take 24 us x 38 / 20; nothing else is under way that would bring the next look.
        assert_eq!(law.retry(), Some(Time::ZERO + Span::from_nanos(45_600)));
        law.see(Time::ZERO, 36 * FRAME);
        assert_eq!(law.release(), Some((FlowId(0), 2 * MSS)));
        // Data that arrived waits, and is no longer expected.
        law.see(Time::ZERO, 38 * FRAME);
        law.on_data(Time::ZERO, &segment(0, 2 * MSS));
        assert_eq!((law.expected, law.outstanding()), (0, 2 * FRAME));
    }

    /// Eq. 1: (Q - Q_fair) / Q_fair, of what the queue holds and of what is still to come.
    #[test]
    fn balance_is_the_queue_beside_what_it_may_hold() {
        let mut law = Law::new(terms());
        for (held, balance) in [(0, -1.0), (20, -0.5), (40, 0.0), (60, 0.5)] {
            law.see(Time::ZERO, held * FRAME);
            assert_eq!(law.balance(), balance, "{held} frames of 40");
        }
        law.see(Time::ZERO, 0);
        law.on_data(Time::ZERO, &Segment { syn: false, ..segment(0, 0) });
        assert_eq!(law.on_ack(Time::ZERO, &segment(0, 0)), AckVerdict::Window(10 * MSS));
        assert_eq!(law.balance(), -0.75, "ten frames are to come");
    }

    /// A flow that was there before the program is taken at the offset that it has.
    #[test]
    fn an_older_connection_goes_on_from_where_it_is() {
        let mut law = Law::new(terms());
        law.on_data(Time::ZERO, &segment(0, 1000 * MSS));
        assert_eq!((law.flows(), law.outstanding()), (1, FRAME), "the segment that was seen");
        let verdict = law.on_ack(Time::ZERO, &segment(0, 1000 * MSS));
        assert_eq!(
            verdict,
            AckVerdict::Window(40 * MSS),
            "what the queue holds: its slow start is long over"
        );
    }

    /// 80 flows have two thirds of a segment each, 100 only half, and share what fills the link without a queue.
    #[test]
    fn fields_far_below_a_segment_share_the_pipe() {
        let (law, _) = opened(80);
        assert_eq!(law.field(&segment(0, MSS)), law.window(MSS, FRAME));
        assert!(law.window(MSS, FRAME) < MSS);
        let (law, _) = opened(100);
        assert_eq!(law.field(&segment(0, MSS)), 20 * FRAME / 100 * MSS / FRAME);
    }

    /// Eqs. 1 and 5: what others have in the queue is no flow's; what the flows have themselves is what they were given.
    #[test]
    fn fields_close_while_others_fill_the_queue() {
        let (mut law, _) = opened(4);
        let open = law.field(&segment(0, MSS));
        assert_eq!(open, (60 * FRAME - 400) / 4 * MSS / FRAME);
        for n in 1..=30 {
            law.see(Time::ZERO, n * FRAME);
            law.own(FRAME);
        }
        assert_eq!(law.field(&segment(0, MSS)), open, "all of the queue is their own");
        law.see(Time::ZERO, 50 * FRAME);
        assert_eq!(law.field(&segment(0, MSS)), (40 * FRAME - 400) / 4 * MSS / FRAME, "20 are of others");
        law.see(Time::ZERO, 90 * FRAME);
        assert_eq!(law.field(&segment(0, MSS)), MSS / CLOSED, "60 are of others");
        // 30 frames leave within 36 us. What waits then has come later, from others.
        law.see(Time::ZERO + Span::from_micros(36), 20 * FRAME);
        assert_eq!(law.own, 0);
        assert_eq!(law.field(&segment(0, MSS)), 40 * FRAME / 4 * MSS / FRAME);
    }

    /// 100 flows and 33 frames, in turns of two: 16 send, the others wait, and come in the order in which they asked.
    #[test]
    fn shares_below_a_segment_are_served_in_turns() {
        let (mut law, verdicts) = opened(100);
        assert_eq!(verdicts.iter().filter(|v| **v == AckVerdict::Window(2 * MSS)).count(), 16);
        assert_eq!(verdicts.iter().filter(|v| **v == AckVerdict::Hold).count(), 84);
        assert_eq!(law.release(), None);
        for flow in 0..16 {
            assert_eq!(law.on_ack(Time::ZERO, &segment(flow, 2 * MSS)), AckVerdict::Window(0), "others wait");
            assert_eq!(law.release(), Some((FlowId(16 + flow), 2 * MSS)));
            assert_eq!(law.release(), None);
        }
    }

    /// A step of 2^13 bytes is 5.66 segments: windows are whole steps, and all the segments that fit count.
    #[test]
    fn a_window_is_whole_steps_of_its_field_and_counts_as_stated() {
        let wide = |segment: Segment| Segment { scale: 8192, window: 1 << 29, ..segment };
        let mut law = Law::new(terms());
        for flow in 0..8 {
            law.on_data(Time::ZERO, &syn(flow));
            law.on_ack(Time::ZERO, &wide(syn(flow)));
        }
        // An eighth of 60 frames is 7.5, of which a step takes 6: six flows have one each in the queue of 40 less 800 bytes.
        assert_eq!((law.outstanding(), law.expected), (36 * FRAME, 36 * FRAME));
        // Two segments have left the queue: 4 of 6 may still come, less than a step, so the field says nothing more.
        law.on_data(Time::ZERO, &wide(segment(0, 2 * MSS)));
        assert_eq!(law.on_ack(Time::ZERO, &wide(segment(0, 2 * MSS))), AckVerdict::Window(0));
        assert_eq!(Segment::stated(8191, MSS, 8192), 0);
        assert_eq!(Segment::stated(2 * MSS, MSS, 128), 2944, "2896, and less than a segment more");
    }

    #[test]
    fn a_fin_a_reset_and_silence_give_the_share_back() {
        let (mut law, _) = opened(2);
        let before = law.outstanding();
        assert_eq!(before, 20 * FRAME);
        law.on_data(Time::ZERO, &Segment { fin: true, ..segment(0, 3 * MSS) });
        assert_eq!((law.flows(), law.outstanding()), (1, 13 * FRAME), "what is under way still counts");
        law.on_ack(Time::ZERO, &segment(0, 3 * MSS));
        assert_eq!(law.outstanding(), 10 * FRAME);
        law.on_data(Time::ZERO, &Segment { rst: true, ..segment(1, 0) });
        assert_eq!((law.flows(), law.outstanding()), (0, 0));
        let (mut law, _) = opened(2);
        let later = Time::ZERO + Span::from_millis(9);
        law.on_data(later, &segment(1, MSS));
        law.on_ack(later, &segment(1, MSS));
        let aged = Time::ZERO + Span::from_millis(10);
        law.see(aged, 0);
        assert_eq!(law.age(aged), [FlowId(0)], "the first was silent for 10 ms");
        assert_eq!((law.release(), law.flows()), (None, 2), "what it had may be on its way");
        law.see(aged + terms().rtt * LEASE, 0);
        assert_eq!(law.release(), Some((FlowId(0), 2 * MSS)), "it is asked by a turn");
        assert_eq!(law.flows(), 1);
        law.on_data(Time::ZERO + Span::from_millis(11), &segment(0, MSS));
        assert_eq!(law.flows(), 2, "it has woken");
    }

    /// 100 flows in turns of two, of which 16 may send at once. Those that do not are closed for those that wait, and asked
    /// again by a turn; who has data is served before the others.
    #[test]
    fn flows_that_do_not_use_their_turn_give_it_back() {
        let rtt = terms().rtt;
        let (mut law, _) = opened(100);
        let at = Time::ZERO + rtt * LEASE;
        law.see(at, 0);
        // The SYNs are over: four more may send.
        let released: Vec<_> = std::iter::from_fn(|| law.release()).collect();
        assert_eq!(released.iter().filter(|(_, window)| *window == 2 * MSS).count(), 4);
        assert_eq!(released.iter().filter(|(_, window)| *window == 0).count(), 16);
        assert_eq!(law.outstanding(), 40 * FRAME, "what was closed may be on its way");
        law.see(at + rtt * LEASE, 0);
        let given: Vec<u32> = std::iter::from_fn(|| law.release()).map(|(flow, _)| flow.0).collect();
        let asked = given.iter().filter(|flow| **flow < 16).count() as u64;
        assert_eq!((given.len() as u64, law.asked), (20, asked));
        assert_eq!(asked, 5, "a quarter of the queue");
        // One of them has data: it counts again, and another is asked.
        let before = law.flows();
        let flow = given.iter().copied().find(|flow| *flow < 16).expect("one that is asked");
        law.on_data(law.seen, &segment(flow, 2 * MSS));
        assert_eq!((law.flows(), law.asked), (before + 1, asked - 1));
        // One that sleeps probes its closed window: it waits for its turn.
        let flow = (0..16).find(|flow| law.flows[&FlowId(*flow)].is_asleep).expect("one that sleeps");
        law.on_data(law.seen, &segment(flow, 0));
        assert!(law.flows[&FlowId(flow)].is_waiting && !law.flows[&FlowId(flow)].is_asleep);
    }

    /// Two flows of 60 frames. The first sends 8 of 10 segments and moves to another port. Not one acknowledgement of them passes.
    /// Answers the time at which it is asked.
    fn moved() -> (Law, Time) {
        let (mut law, _) = opened(2);
        law.on_data(Time::ZERO, &segment(0, 8 * MSS));
        // The other goes on, and keeps ten frames.
        let aged = Time::ZERO + terms().ageing;
        law.on_data(aged, &segment(1, 10 * MSS));
        law.on_ack(aged, &Segment { window: 10 * MSS, ..segment(1, 10 * MSS) });
        assert_eq!((law.flows(), law.outstanding()), (2, 20 * FRAME));
        law.see(aged, 0);
        assert_eq!(law.age(aged), [FlowId(0)], "its window closes");
        assert_eq!(law.outstanding(), 12 * FRAME, "what had come has gone; two segments may be on their way");
        let asked = aged + terms().rtt * LEASE;
        law.see(asked, 0);
        assert_eq!(law.release(), Some((FlowId(0), 2 * MSS)), "a turn, and none of what had come");
        assert_eq!((law.flows(), law.asked, law.outstanding()), (1, 1, 12 * FRAME));
        (law, asked)
    }

    /// It keeps a turn until somebody waits, and the others share the rest.
    #[test]
    fn a_flow_that_moves_away_with_data_keeps_no_more_than_a_turn() {
        let (mut law, asked) = moved();
        assert_eq!(law.share(), 58 * FRAME);
        assert_eq!(law.retry(), None, "nobody waits");
        // 100 flows come, of which 14 find room for a turn.
        for flow in 2..102 {
            law.on_data(asked, &syn(flow));
            law.on_ack(asked, &syn(flow));
        }
        assert!(!law.waiting.is_empty());
        let later = asked + terms().rtt * LEASE;
        law.see(later, 0);
        let closed = std::iter::from_fn(|| law.release()).find(|(flow, _)| *flow == FlowId(0));
        assert_eq!(closed, Some((FlowId(0), 0)));
        law.see(later + terms().rtt * LEASE, 0);
        law.free();
        assert!(law.flows[&FlowId(0)].is_asleep && law.flows[&FlowId(0)].outstanding() == 0);
    }

    /// Its sender goes on with the right edges of another router, and moves back 1,000 segments later.
    #[test]
    fn a_flow_that_moves_back_counts_with_what_comes_here() {
        let (mut law, asked) = moved();
        let back = asked + terms().ageing * 10;
        law.see(back, 0);
        law.on_data(back, &segment(0, 1001 * MSS));
        assert_eq!((law.flows(), law.asked, law.outstanding()), (2, 0, 11 * FRAME));
        (1002..=1004).for_each(|n| law.on_data(back, &segment(0, n * MSS)));
        assert_eq!(law.outstanding(), 14 * FRAME, "four segments, but for those of the other way");
        // Half of the budget, which counts but for the ten segments of the other way.
        assert_eq!(law.on_ack(back, &segment(0, 990 * MSS)), AckVerdict::Window(30 * MSS));
        assert_eq!(law.outstanding(), 30 * FRAME);
        let verdict = law.on_ack(back, &segment(0, 1004 * MSS));
        assert_eq!(
            (verdict, law.outstanding()),
            (AckVerdict::Window(20 * MSS), 30 * FRAME),
            "half of the queue"
        );
    }

    /// It never moved: what it had sent was lost behind the port, and it sends that again after its timeout.
    #[test]
    fn what_counted_as_gone_counts_when_it_is_sent_again() {
        let (mut law, asked) = moved();
        let rto = asked + terms().ageing * 10;
        law.see(rto, 0);
        law.on_data(rto, &segment(0, MSS));
        assert_eq!((law.flows(), law.asked), (2, 0));
        assert_eq!(law.outstanding(), 20 * FRAME, "it may send all ten again");
        assert_eq!(
            law.on_ack(rto, &segment(0, 8 * MSS)),
            AckVerdict::Window(18 * MSS),
            "it is in slow start"
        );
        assert_eq!(law.outstanding(), 28 * FRAME);
    }

    /// Data that passes without its acknowledgements holds back nobody; nor do acknowledgements that pass without their data.
    #[test]
    fn a_flow_whose_ways_differ_keeps_no_share_of_grants() {
        let (mut law, _) = opened(3);
        let (ms, mut closed) = (Span::from_millis(1), Vec::new());
        for n in 1..=100 {
            let now = Time::ZERO + ms * n;
            law.see(now, 0);
            law.on_data(now, &segment(0, n * 4 * MSS));
            law.on_ack(now, &segment(1, n * 4 * MSS));
            law.on_data(now, &segment(2, n * 4 * MSS));
            assert_ne!(law.on_ack(now, &segment(2, n * 4 * MSS)), AckVerdict::Window(0), "{n} ms");
            if n % 5 == 0 {
                closed.extend(law.age(now));
            }
            while law.release().is_some() {}
        }
        let held = |flow| law.flows[&FlowId(flow)].outstanding();
        assert_eq!((held(0), held(1)), (0, 2 * FRAME), "the second is asked");
        assert_eq!(
            (law.flows(), &closed[..]),
            (2, &[FlowId(1)][..]),
            "the data of the first takes part of the link"
        );
        // Its acknowledgements give a turn, as those of an unknown flow do.
        assert_eq!(law.on_ack(law.seen, &segment(1, 404 * MSS)), AckVerdict::Window(2 * MSS));
    }

    proptest! {
        /// Eq. 5: whatever flows do, grants never lift the balance factor above 0, and counts follow from the entries.
        #[test]
        fn grants_never_exceed_the_budget(
            steps in prop::collection::vec((0u32..80, 0u8..8, 0u64..8), 1..400),
            shift in 0u32..15,
        ) {
            let scale = 1 << shift;
            let syn = |flow| Segment { scale, ..syn(flow) };
            let segment = |flow, offset| Segment { scale, ..segment(flow, offset) };
            let mut law = Law::new(terms());
            let mut now = Time::ZERO;
            for (flow, step, n) in steps {
                now += Span::from_micros(100 * n);
                let mut before = law.outstanding();
                let known = law.flows.get(&FlowId(flow)).copied();
                // Senders keep to the edge that they were given, by this router or by another.
                let edge = known.map_or(0, |f| f.edge);
                let elsewhere = edge + n * 10 * MSS;
                let at = known.map_or(0, |f| f.acked + n * MSS).min(edge);
                match step {
                    0 => law.on_data(now, &syn(flow)),
                    1 => drop(law.on_ack(now, &Segment { syn: at == 0, ..segment(flow, at) })),
                    2 => drop(law.on_ack(now, &segment(flow, at))),
                    3 if known.is_some() => law.on_data(now, &segment(flow, at)),
                    4 if known.is_some() => law.on_data(now, &Segment { fin: true, ..segment(flow, at) }),
                    5 => drop(law.age(now)),
                    6 if known.is_some() => law.on_data(now, &segment(flow, elsewhere)),
                    7 if known.is_some() => drop(law.on_ack(now, &segment(flow, elsewhere))),
                    _ => {}
                }
                // Data is no grant: it counts when it comes.
                if matches!(step, 3 | 4 | 6) {
                    before = law.outstanding();
                }
                while law.release().is_some() {}
                prop_assert!(law.outstanding() <= law.budget().max(before));
                prop_assert!(law.flows.values().all(|f| f.gone <= f.came));
                prop_assert_eq!(law.outstanding(), law.flows.values().map(Flow::outstanding).sum::<u64>());
                prop_assert_eq!(law.expected, law.flows.values().map(Flow::expected).sum::<u64>());
                let counted = law.flows.values().filter(|f| f.is_open && f.is_counted).count();
                prop_assert_eq!(law.open, counted as u64);
                prop_assert_eq!(law.asked, law.flows.values().filter(|f| f.is_asked).count() as u64);
                prop_assert_eq!(law.asking, law.flows.values().map(Flow::asking).sum::<u64>());
                prop_assert_eq!(law.idle.len(), law.flows.values().filter(|f| f.idle_at.is_some()).count());
            }
        }
    }
}

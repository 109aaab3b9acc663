//! The law `robust`, for real paths: [`delay`](super::delay) with loss judged by what it does to delivery, steps in
//! proportion to the bandwidth, and rounds that are shorter while the path moves.
//!
//! N and L are the packets sent and lost in a round, S and R the rates sent and received, T_s and T_r the length of the
//! round at both ends, q the queueing delay, g = 12 kbit / max(R, W, C) the time of one packet, where C counts
//! once it is learned, Q the bits of this traffic that waited when a queue last overflowed. D2 to D9 are those of `delay`, with steps of max(60 kbit/s, 3 %), q* = max(30 ms, 4 g), and empty
//! below max(8 ms, 1.5 g).
//!
//! | | |
//! |---|---|
//! | R1 | p0 = sum L / sum N over rounds without a queue that are not suspect, forgotten with 2000 packets |
//! | R2 | excess: L > N p0 + 3 sqrt(N p0 (1 - p0)) + 1.5, where, without a queue, p0 begins at 2 of 40 packets, which count less and less in the first 200 |
//! | R2a | Q is learned from L > N p0 + 5 sqrt(N p0 (1 - p0)) + 1.5 with a queue; a longer queue without excess raises it; R3 forgets it where it clears |
//! | R3 | excess without a queue: W = 0.97 R / (1 - p0), at least 0.7 W when S < 0.85 W, the first time not when that is above 1.2 S, and the round is suspect. W does not grow by it. When the next round with excess sends less and loses a share nearer to that of the suspect one than to 1 - R / S, what a full path would lose of it, or sends more and delivers half of what is more, the loss is the path's: both go to R1, and W comes back, but no higher than a queue or a fall has taken it since. Until enough packets were sent to tell, W does not grow |
//! | R4 | rho = T_r / T_s without excess, which no loss disturbs; else S (1 - p0) / R; through = S / rho |
//! | R5 | A = max(S - C (rho - 1), 0.8 through); C is learned again when A jumps by half |
//! | R5a | an answer tells of the W of its round (`past`): the queue ahead goes on as in the round, but for what W has changed since |
//! | R5b | a queue at the end of a round alone, not long enough for R6, without excess, when 0.7 W is above 1.2 S: W stays, the next round tells |
//! | R5c | until more is known, C is as many times through as it was times A last, 1.5 at first; a round that a fall lies in teaches neither C nor w |
//! | R6 | rho > 1.15 or A < 0.85 W, with a queue ahead of more than `FALLEN` q*: W = 0.85 A; until W is back where it was, D6 drains a queue above `LONG` q* by up to `DEEP` A, a shorter one by up to `TENTH`, and as fast for 0.3 s and half the RTT of queue |
//! | R7 | no queue and S >= 0.85 of the W of the round: W grows by a step a cycle up to `BEYOND` A where others had a third of C or more when a queue stood last; else by a step twice, then by 10, 20, 40, 80, 100 %, each at most what fills half of Q, or `ROOM`, or a quarter of the RTT, before the next answer, but `KNOWN` below what was seen to come before the last fall, else 5 %, 10 % after four; by a step again as soon as T_r / T_s > 1.005 + g / 2 T_s, not at all then above what came before the last fall, and by a step from `BELOW` of it up to `CREST` of it once it was reached, and there only by rounds that began after the last growth, unless falls are short; below `BELOW` of it one round in which T_r / T_s grew costs its own growth alone; a round that was sent before the last growth is no news |
//! | R7a | a round that sends less than 0.85 W, within a cycle after W grew from far below the height, makes the next question leave early: what is sent takes a while to grow after W |
//! | R1a | a round without a queue teaches p0 only when, or once, S <= 1.01 of the most that was seen to come, R / (1 - p0), since the last fall |
//! | R3a | when a round after a suspect one sends less and loses at most a quarter of what its share is, 4 packets or more: W grows to 0.97 R / (1 - p0) of the suspect one at most, for `LID` at first, for twice as long each time that it ends so `AGAIN` near the last one and `AGAIN_WITHIN` after it, up to `LONGEST_LID` |
//! | R8 | an answer that is overdue by `PATIENCE`: the next question leaves at once; W = 0.7 W for each after the first in a row, once that is below 1.2 S; undone by an answer without a queue, with excess up to through |
//! | R8a | of a round with excess but no queue in which overdue answers have cut W, through is what came less all that was sent below W before, over the rest of its time, a tenth of a cycle at least |
//! | R9 | the other gateway reports that its rate fell to R', at least a packet in the time that it was measured over: W is as R9b says, when 1.25 times as much, and two packets more, was sent all the time since what it counted left; questions from before it change nothing, and rounds that began before it raise nothing, and their excess says that it was true; undone by an answer without queue and excess |
//! | R9a | of the round that a report lies in, only the queue at its end is news: without one W is `RETURNS` R' / (1 - p0) at least, else D6 with R' / (1 - p0) for A, which, `CARRIES_FROM` after the report, is at most what waited and W since, over the time until that queue has gone, but `LEAST_CARRIED` of it at least |
//! | R9b | what was sent above R' / (1 - p0) for one and a half times the report's time and a round trip waits, up to Q: q_f seconds. W = R' / (1 - p0) less a share of `YIELDS` q_f / (q_f + RTT), at most q_f / `GONE_IN` and `DEEP`, at least 0.15, and 0.15 where a fall was short less than 30 s ago, see R12. An answer may wait for 1.3 q_f |
//! | R9c | the other gateway looks at its counter every 25 ms. It reports again when 20 packets have come, ten after 0.3 s, 0.8 s later at most, if that is 5 % from R' and four of six reports are left. For `EXACT` it takes the place of R' when all that it counted was sent before W fell, or it is above `DRAINS_BY` W, now or when that was sent, which only a queue explains, or above R', or below R' and a queue stood: what R9b says waited then, where Q is known, less what came beyond the least that was sent, is more than two packets |
//! | R9d | for `TOLD_FOR` after a report, unless a fall was short less than 30 s ago, A is `RETURNS` to 1 of R' / (1 - p0), until a round that sent 0.85 of that says something else by `ELSE` and a packet; without a queue W comes back to `RETURNS` of it at once, and grows to `ABOVE_TOLD` of it, until `MORE` of it comes in a round of more than 20 packets without a queue; a queue below `LONG` q* takes W no lower than `TENTH` below it; steps are at most `SMALL` of W, less a thirtieth per s of RTT; what a round loses that sent less and has no queue left is the fall's; through takes the place of R' after a round that sent more and lost for it, and after one of more than 20 packets with a queue above q* at both ends; the queue ahead shrinks by 1 - S (1 - p0) / R' at least, and rho > 1.15 is no fall where A is within `AS_TOLD` of R' / (1 - p0) |
//! | R9e | where A is above `ALONE` R' / (1 - p0) of a fall that W has not come back from, nobody else has a good part of C, whatever the slope says: beside traffic that yields nothing, what came of far more would be a fifth above A |
//! | R10 | a queue that was 2 q* long, then stood above `STANDING` q* for `STANDS`, is not shorter round by round for `DRAINS`, while what comes through fell below `TAKEN` of what it was, is another's: until the queue is empty, W = 0.85 through on excess, else max(W, through) and a step |
//! | R11 | w is the mean of the lesser of two changes of q in a row that go opposite ways, with a weight of an eighth: a queue is empty below 3 w too, but below no more than three quarters of Q, a quarter where others had a third of C or more when a queue stood last and a step fills `SWAYS` of Q in a cycle; q* is 6 w at least; in a round of less than half a cycle, rho is nearer to 1 by 2 w / T_s |
//! | R12 | a fall is over when R is above 1.3 times what came through. Where that was seen within 1.5 s of a fall, less than 30 s ago, and this fall began from `NEAR` of the height or more, R7 begins with 0.95 of what W was before this one, without hurry, and a lid is as long as the first: a bet. It is won by a round after it in which `WON` of that comes, and lost by one in which less does, by the second overdue answer in a row, which takes W back at once, or by the second fall in a row that comes before such a round. After a lost one falls are no longer short; after the second in a row the next bet waits for 4 s, and twice as long after each more, up to 64 |
//!
//! While W grows or falls, and after R3, R8 and R9, the next question leaves a quarter of a cycle after the last one, and a
//! fifth after what has made it so (`pace`). In the first `SURE` rounds of growth it does so only while half the budget of
//! questions is left: W also grows now and then where the path stands. The other gateway looks at its counter between questions (`watch`).

mod habit;
mod noise;
pub(super) mod pace;
mod past;
mod told;
mod view;
pub(super) mod watch;

use self::habit::{Dips, Lid, Sway};
use self::noise::{Acquittal, Noise, Suspect, Unproven};
use self::past::Past;
use self::told::Flood;
use self::view::{USED, View};
use super::delay::{Least, Round, Slope};
use crate::time::{Span, Time};
use crate::units::Rate;

/// Settings of the law `robust`.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Share that W rests above a goal.
    pub margin: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { margin: 0.02 }
    }
}

/// Half the time over which the least one-way delay counts.
const WINDOW: Span = Span::from_secs(60);
/// Bits of a packet.
const PACKET: f64 = 12e3;
/// C over A while nothing is known of it, and the most that is remembered.
const UNKNOWN: f64 = 1.5;
/// Queues ahead above this many times the target are left at once.
const FALLEN: f64 = 4.0;
/// Rounds of more packets, with a queue all the time, say what is free better than a report.
const EXACT_FROM: f64 = 20.0;
/// What is left of a fall is long above this many times the target.
const LONG: f64 = 8.0;
/// Seconds that an answer may take beyond the least round-trip time and the last queueing.
const PATIENCE: f64 = 0.1;
/// The same before any answer.
const PATIENCE_AT_FIRST: f64 = 3.0;
/// Share of W that is left after each overdue answer but the first: any packet may be lost.
const OVERDUE: f64 = 0.7;
/// A cut that leaves more than so many times what is sent is not felt.
const FELT: f64 = 1.2;
/// How far below what arrives W goes so that a queue drains.
const BELOW: f64 = 0.85;
/// Most seconds of queue that a step may fill.
const ROOM: f64 = 0.1;
/// Share of what came through at first that is left when a queue is another's.
const TAKEN: f64 = 0.8;
/// Such a queue is never shorter than this many times the target.
const STANDING: f64 = 1.3;
/// How long it must have stood.
const STANDS: Span = Span::from_secs(8);
/// One that was shorter in each round for so long drains.
const DRAINS: Span = Span::from_secs(3);
/// Loss teaches the path's share up to this many times what was seen to come.
const BEYOND_PEAK: f64 = 1.01;
/// A above this share of what came when far more was sent: nobody else shares the path.
const ALONE: f64 = 0.9;
/// Others have a good part of the capacity when it is this many times what is free.
const SHARED: f64 = 1.5;
/// While others share the path, W grows by steps up to this many times what was free.
const BEYOND: f64 = 1.5;
/// Most that a step may be on the way up to what the path has carried before.
const KNOWN: f64 = 0.5;
/// Up to this many times the height that was reached, W grows by steps: it was a little below what the path carries.
const CREST: f64 = 1.1;
/// Beside others a queue goes to and fro with W where a step fills so much of it in a cycle.
const SWAYS: f64 = 0.3;
/// Share of what W was before a fall that it takes at once where falls are short.
const RETURNS: f64 = 0.95;
/// A fall from below this share of the height that W knows is not the next of a path whose falls are short.
const NEAR: f64 = 0.5;
/// Rounds of growth in a row after which it is the path that moves.
const SURE: u32 = 2;
/// Share of what is free that drains the end of a long queue: W is to be within a tenth of what is free soon.
const TENTH: f64 = 0.07;
/// Most of what is free that a step is after a report, where answers come at once.
const SMALL: f64 = 0.05;
/// Part of a step that W goes below what is free to drain a short queue.
const DRAIN: f64 = 0.75;
/// Most of what comes through that is not sent, so that the queue of a fall drains.
const DEEP: f64 = 0.6;
/// Share by which a round says something else than a report.
const ELSE: f64 = 0.3;
/// Share by which it says the same.
const AS_TOLD: f64 = 0.1;
/// Most that W grows to, as a multiple of what the last report, and what came since, say is free...
const ABOVE_TOLD: f64 = 1.05;
/// ... until so many times that comes.
const MORE: f64 = 1.03;

/// Why a round is to be short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hurry {
    /// The path moves.
    Moves,
    /// It may.
    ToSee,
}

/// State of the law.
#[derive(Clone, Debug)]
pub(super) struct Robust {
    settings: Settings,
    cycle: f64,
    needs: Vec<f64>,
    noise: Noise,
    /// W(t) so far.
    past: Past,
    /// When W last grew by R7.
    raised: Option<Time>,
    least: Least,
    /// Of the time from a question to its answer.
    shortest: Least,
    rtt: f64,
    last: Option<Last>,
    /// A'(t-1).
    free: Option<f64>,
    slope: Slope,
    /// C over A, when it was known last.
    others: f64,
    /// No queue and no loss was seen yet.
    starting: bool,
    /// When the queue was last empty.
    emptied: Option<Time>,
    /// A of the last busy round, while an emptied queue is asked for.
    resume: Option<f64>,
    queueing: f64,
    proven: f64,
    sway: Sway,
    dips: Dips,
    /// Q: bits that wait when packets are lost.
    full: f64,
    /// The most that was seen to come, with what the path loses anyhow; forgotten in half an hour.
    peak: f64,
    /// W before the last fall, until it is reached again.
    height: Option<f64>,
    /// The height that was reached last, until W is well above.
    crest: Option<f64>,
    /// Set where more was lost without a queue.
    lid: Option<Lid>,
    /// A queue that stands, and whether it is another's.
    foreign: Option<Foreign>,
    /// A when a queue stood last, where others have a good part of C.
    anchor: Option<f64>,
    /// The reserve is used up, and the queue has not drained to its target since.
    spent: bool,
    /// Rounds in a row in which W grew.
    streak: u32,
    /// Rounds that are still to be short.
    hurry: u32,
    /// It is to see whether the path moves, not because it does.
    tentative: bool,
    /// W before silence or a report cut it.
    before: Option<f64>,
    /// It was a report.
    told: bool,
    /// When the last report cut W, until a round begins after that.
    cut: Option<Time>,
    /// What was sent too much before that.
    flood: Option<Flood>,
    /// What came in the last fall, by a report, until W is back.
    reported: Option<f64>,
    /// Questions overdue since the last answer.
    silent: u32,
    /// W that they leave.
    heard: f64,
    /// Queueing in s that is expected of the next answer.
    expected: f64,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    sent: f64,
    rho: f64,
    busy: bool,
    standing: bool,
    /// q at its end, s.
    queue: f64,
}

/// A queue that stands.
#[derive(Clone, Copy, Debug)]
struct Foreign {
    since: Time,
    /// When it was last no shorter than a round before.
    grew: Time,
    /// How long it is, s.
    queue: f64,
    /// What came through then.
    through: f64,
    /// Another's.
    proven: bool,
}

impl Robust {
    pub(super) fn new(settings: Settings, cycle: Span) -> Self {
        Self {
            settings,
            cycle: cycle.as_secs_f64().max(1e-3),
            needs: Vec::new(),
            noise: Noise::default(),
            past: Past::default(),
            raised: None,
            least: Least::new(WINDOW),
            shortest: Least::new(WINDOW),
            rtt: f64::INFINITY,
            last: None,
            free: None,
            slope: Slope::default(),
            others: UNKNOWN,
            starting: true,
            emptied: None,
            resume: None,
            queueing: 0.0,
            proven: 0.0,
            sway: Sway::default(),
            dips: Dips::default(),
            full: f64::INFINITY,
            peak: 0.0,
            height: None,
            crest: None,
            lid: None,
            foreign: None,
            anchor: None,
            spent: false,
            streak: 0,
            hurry: 4,
            tentative: false,
            before: None,
            told: false,
            cut: None,
            flood: None,
            reported: None,
            silent: 0,
            heard: 0.0,
            expected: 0.0,
        }
    }

    /// The bandwidth that the last round has shown to be free.
    pub(super) const fn proven(&self) -> f64 {
        self.proven
    }

    /// Queueing at the last probe.
    pub(super) fn queueing(&self) -> Span {
        Span::from_secs_f64(self.queueing)
    }

    /// p0.
    pub(super) fn noise(&self) -> f64 {
        self.noise.share()
    }

    /// Whether the next round is to be short.
    pub(super) const fn hurries(&self) -> Option<Hurry> {
        match (self.hurry, self.tentative) {
            (0, false) => None,
            (0, true) => Some(Hurry::ToSee),
            _ => Some(Hurry::Moves),
        }
    }

    pub(super) fn set_goals(&mut self, needs: &[Rate]) {
        self.needs = needs.iter().map(|need| need.bits_per_sec() as f64).collect();
        self.needs.sort_by(f64::total_cmp);
    }

    /// Clocks or counters restarted: old values do not compare with new ones.
    pub(super) fn forget(&mut self) {
        (self.least, self.shortest) = (Least::new(WINDOW), Least::new(WINDOW));
        (self.last, self.free, self.emptied, self.resume, self.before) = (None, None, None, None, None);
        (self.anchor, self.lid, self.foreign, self.cut, self.crest) = (None, None, None, None, None);
        (self.flood, self.reported) = (None, None);
        self.others = UNKNOWN;
        (self.sway, self.dips) = (Sway::default(), Dips::default());
        (self.rtt, self.queueing, self.expected) = (f64::INFINITY, 0.0, 0.0);
        self.noise.forget_suspicion();
    }

    /// How long an answer may take before it is overdue, in s.
    pub(super) fn patience(&self) -> f64 {
        if self.rtt.is_finite() { self.rtt + self.expected + PATIENCE } else { PATIENCE_AT_FIRST }
    }

    /// R8: W after one more question whose answer is overdue.
    pub(super) fn overdue(&mut self, now: Time, estimate: f64) -> f64 {
        self.past.amend(estimate);
        self.hurry = self.hurry.max(3);
        self.silent += 1;
        if self.silent == 1 {
            self.heard = estimate;
            return estimate;
        }
        if let Some(from) = self.dips.overdue(now) {
            (self.free, self.heard, self.proven) = (None, from, from);
            self.past.set(now, from);
            return from.min(estimate);
        }
        self.heard *= OVERDUE;
        // What takes nothing from the traffic can wait: it is answers that are lost, most likely.
        if self.heard >= estimate || self.last.is_some_and(|last| self.heard > FELT * last.sent) {
            return estimate;
        }
        self.before.get_or_insert(estimate);
        self.free = None;
        self.proven = self.heard;
        self.past.set(now, self.proven);
        self.proven
    }

    /// The least round-trip time, s, at most a second.
    pub(super) fn rtt(&self) -> f64 {
        self.rtt.min(1.0)
    }

    /// How far W goes above what is free, and climbs in a round at first. After a report W is to be within a tenth of what is
    /// free: less, and less where answers come later than the next step.
    fn step(&self, at: f64, asked: Time) -> f64 {
        let most = if self.known(asked).is_some() { SMALL - self.rtt.min(0.6) / 30.0 } else { 0.1 };
        f64::max(60e3, 0.03 * at).min(most * at)
    }

    /// The path carries `through` from now on; what it carried before, and W was, it may carry again.
    fn fall(&mut self, now: Time, estimate: f64, through: f64) {
        let height = if self.peak > 0.0 { estimate.min(self.peak) } else { estimate };
        let known = self.height.map_or(height, |before| before.max(height));
        self.dips.fall(now, through, height >= NEAR * known);
        (self.height, self.crest) = (Some(known), None);
        self.peak = through;
        self.noise.bound(through);
        // What waits now was sent before, and the last round does not compare with the next.
        self.foreign = None;
        self.last = self.last.map(|last| Last { busy: false, ..last });
    }

    /// W(t) from W(t-1).
    pub(super) fn next(&mut self, estimate: f64, round: &Round) -> f64 {
        self.past.amend(estimate);
        let next = self.after(estimate, round);
        self.past.set(round.asked + Span::from_secs_f64(round.answered_after), next);
        next
    }

    fn after(&mut self, estimate: f64, round: &Round) -> f64 {
        self.hurry = self.hurry.saturating_sub(1);
        self.tentative = false;
        let mut view = self.look(estimate, round);
        // Rounds from before a report tell of the path before, and what they say more is old. One that the report lies in may still
        // undo it, when it has neither a queue nor excess.
        let cut = self.cut.filter(|cut| view.asked.since(*cut) < Span::from_secs_f64(round.span));
        if cut.is_some() {
            view.spans_fall = true;
            self.sway.fell();
        }
        if cut.is_some_and(|cut| view.asked <= cut) {
            self.keep(&view);
            return estimate;
        }
        if cut.is_some() && (view.excess || view.standing) {
            // It was true.
            (self.before, self.told) = (None, false);
            self.keep(&view);
            return self.reported(estimate, &view);
        }
        self.cut = None;
        if !view.spans_fall {
            self.dips.see(view.asked, round.span, view.received);
        }
        if let Some(before) = self.before.filter(|_| view.excess && !(view.standing || self.told)) {
            view.through = self.uncut(&view, before);
        }
        let estimate = self.recall(estimate, &view);
        if round.packets == 0 {
            return estimate;
        }
        if cut.is_none() {
            self.remember(&view);
        }
        self.judge(estimate, &view)
    }

    /// The most that came, and the least queue that overflowed. Both are forgotten in half an hour: it may have been another's
    /// burst.
    fn remember(&mut self, view: &View) {
        self.full *= 1.0005;
        let came = view.received / (1.0 - self.noise.share());
        let is_clear = !(view.standing || view.was_standing) && view.packets > EXACT_FROM;
        if is_clear && self.known(view.asked).is_some_and(|known| came > MORE * known) {
            self.flood = None;
        }
        self.peak = (self.peak * 0.9995).max(came);
        if view.standing && view.rho.is_finite() {
            let waited = view.queue * view.through;
            if self.noise.overflows(view.packets, view.lost) {
                self.full = self.full.min(waited);
            } else if !view.excess {
                // What waited and was not lost had room.
                self.full = self.full.max(waited);
            }
        }
    }

    /// W by what kind of round it was.
    fn judge(&mut self, estimate: f64, view: &View) -> f64 {
        if !view.rho.is_finite() {
            self.free = None;
            self.hurry = self.hurry.max(2);
            return if view.packets >= 5.0 { estimate / 2.0 } else { estimate };
        }
        if !view.standing {
            self.foreign = None;
        }
        match (view.standing, view.was_standing) {
            (false, false) => self.clear(estimate, view),
            (false, true) => {
                let (measured, _) = self.measure(view);
                self.drained(estimate, measured, view)
            }
            (true, _) => {
                let (measured, capacity) = self.measure(view);
                let next = self.queued(estimate, measured, capacity, view);
                self.noise.bound(next);
                next
            }
        }
    }

    /// R1, R2, R4 and D4.
    fn look(&mut self, estimate: f64, round: &Round) -> View {
        self.rtt = self.shortest.with(round.answered_after, round.asked);
        let queue = round.one_way - self.least.with(round.one_way, round.asked);
        self.queueing = queue;
        let is_old = self.flood.is_some_and(|flood| round.asked <= flood.told);
        self.expected = queue.max(if is_old { self.expected } else { 0.0 });
        self.silent = 0;
        let (packets, lost) = (round.packets as f64, round.lost.max(0) as f64);
        let mut carried = round.received.max(estimate).max(1e5);
        if self.slope.is_learned() {
            carried = carried.max(self.slope.capacity(self.others * carried));
        }
        let grain = PACKET / carried;
        self.sway.see(queue);
        let full = self.full / round.received.max(1e5);
        // Beside others a step of W alone takes a short queue to and fro.
        let step = self.step(estimate, round.asked) * self.cycle / carried;
        let is_own = self.anchor.is_some() && step > SWAYS * full;
        let empty = f64::max(0.008, 1.5 * grain).max(self.sway.empty(full, is_own));
        let standing = queue > empty;
        let excess = self.noise.exceeds(packets, lost, standing);
        let was_standing = self.last.is_some_and(|last| last.standing);
        // A queue that was merely short does not renew the least delay, or the error would add up window by window.
        if queue <= empty / 4.0 || !(standing || was_standing) || self.emptied.is_none() {
            self.emptied = Some(round.asked);
        }
        let stale = self.emptied.is_some_and(|at| round.asked.since(at) > WINDOW);
        let resume = self.resume;
        if !stale {
            self.resume = None;
        }
        let rho = if round.received <= 0.0 {
            f64::INFINITY
        } else if excess {
            round.sent * (1.0 - self.noise.share()) / round.received
        } else {
            round.stretch
        };
        let is_short = rho.is_finite() && round.span < self.cycle / 2.0;
        let rho = if is_short { self.sway.steadied(rho, round.span) } else { rho };
        let start = round.asked.as_nanos().saturating_sub(Span::from_secs_f64(round.span).as_nanos());
        View {
            wanted: self.past.mean(Time::from_nanos(start), round.asked).unwrap_or(estimate).max(1.0),
            held: self.past.at(round.asked).unwrap_or(estimate),
            sent: round.sent,
            received: round.received,
            packets,
            lost,
            queue,
            target: f64::max(0.03, 4.0 * grain).max(self.sway.target()),
            excess,
            standing,
            was_standing,
            rho,
            through: round.sent / rho,
            grows: round.stretch > 1.005 + 0.5 * grain / round.span.max(1e-3),
            asked: round.asked,
            began: Time::from_nanos(start),
            answered_after: round.answered_after,
            stale,
            resume,
            spans_fall: false,
        }
    }

    /// R8a: what came while W was `before`, of a round in which overdue answers have cut it.
    fn uncut(&self, view: &View, before: f64) -> f64 {
        let cut = self.past.between(view.began, view.asked).filter(|(w, _)| *w < before);
        let (came, seconds) = cut.fold((0.0, 0.0), |(came, all), (w, part)| (came + w * part, all + part));
        let rest = view.span() - seconds;
        if rest < self.cycle / 10.0 {
            return view.through;
        }
        ((view.through * view.span() - came) / rest).min(before).max(view.through)
    }

    /// Undoes R8 and R9.
    fn recall(&mut self, estimate: f64, view: &View) -> f64 {
        let was_told = std::mem::take(&mut self.told);
        match self.before.take() {
            // With excess, no more than what came.
            Some(before) if view.excess && !view.standing && !was_told => {
                before.min(view.through).max(estimate)
            }
            Some(before) if !(view.standing || view.excess) => {
                self.flood = None;
                before
            }
            _ => estimate,
        }
    }

    /// No queue at either end of the round.
    fn clear(&mut self, estimate: f64, view: &View) -> f64 {
        self.keep(view);
        self.free = None;
        if view.excess {
            return self.suspicious(estimate, view);
        }
        let verdict = self.noise.acquit(view.sent, view.packets, view.lost, USED);
        // Loss of what nothing so far has shown to be carried may be that of a queue that does not show.
        let round = Unproven { sent: view.sent, packets: view.packets, lost: view.lost };
        self.noise.absorb_carried(round, BEYOND_PEAK * self.peak);
        self.proven = view.sent.max(view.resume.unwrap_or(0.0));
        let estimate = match verdict {
            Acquittal::Restored(before) => estimate.max(before),
            Acquittal::Guilty(through) => {
                let before = self.lid.filter(|_| !self.dips.are_short(view.asked));
                self.lid = Some(Lid::again(before, 0.97 * through, view.asked));
                estimate
            }
            Acquittal::Open => return estimate,
            Acquittal::None => estimate,
        };
        self.climb(estimate, view, self.proven)
    }

    /// R3.
    fn suspicious(&mut self, estimate: f64, view: &View) -> f64 {
        let suspect = Suspect {
            sent: view.sent,
            received: view.received,
            packets: view.packets,
            lost: view.lost,
            estimate,
        };
        let is_first = !self.noise.suspects();
        if let Some(estimate) = self.noise.judge(suspect, USED) {
            // Losses so far were the path's, also those that seemed to be of a queue.
            self.full = f64::INFINITY;
            self.hurry = self.hurry.max(1);
            self.proven = estimate;
            return estimate;
        }
        (self.starting, self.streak) = (false, 0);
        self.hurry = self.hurry.max(2);
        self.proven = view.through;
        // What is sent does not fill W: so far it is not W that is too much.
        let least = match 0.7 * estimate {
            _ if view.is_used() => 0.0,
            left if is_first && left > FELT * view.sent => estimate,
            left => left,
        };
        f64::max(0.97 * view.through, least).min(estimate)
    }

    /// R5, D2 and D3: A and C.
    fn measure(&mut self, view: &View) -> (f64, f64) {
        self.starting = false;
        let capacity = self.slope.capacity(self.others * view.through).max(view.through);
        let before = self.last.map_or(0.0, |last| last.queue);
        if let Some(last) = self.last.filter(|last| last.busy && view.busy()) {
            self.slope.learn(view.sent - last.sent, view.rho - last.rho, capacity);
        }
        self.keep(view);
        let mut measured = (view.sent - capacity * (view.rho - 1.0)).max(0.8 * view.through);
        if view.excess {
            measured += (view.through - measured).max(0.0) / 3.0;
        }
        if let Some(mut known) = self.known(view.asked) {
            let is_lossy = view.excess && view.sent > 1.02 * view.through && view.through < known;
            // A queue all the time: what came is what is free. One of a packet or two at both ends may have been empty between.
            let is_full = view.busy() && before.min(view.queue) > view.target;
            if is_lossy || is_full && !view.spans_fall && view.packets > EXACT_FROM {
                (self.peak, known) = (view.through, view.through);
            }
            // A packet more or less says nothing else.
            let same = ELSE * known + PACKET / view.span();
            if view.sent < BELOW * known || (measured - known).abs() < same {
                measured = measured.clamp(RETURNS * known, known);
            } else {
                self.flood = None;
            }
        }
        (measured, capacity)
    }

    fn keep(&mut self, view: &View) {
        let (busy, standing) = (view.busy() && !view.spans_fall, view.standing);
        self.last = Some(Last { sent: view.sent, rho: view.rho, busy, standing, queue: view.queue });
    }

    /// The queue ran empty: more is free than was measured.
    fn drained(&mut self, estimate: f64, measured: f64, view: &View) -> f64 {
        self.free = None;
        if view.excess {
            self.streak = 0;
            self.hurry = self.hurry.max(2);
            // What is left of a fall.
            if self.known(view.asked).is_some_and(|known| view.sent < BELOW * known) {
                return estimate;
            }
            self.proven = view.through;
            return (0.97 * view.through).min(estimate);
        }
        self.proven = measured;
        if view.stale {
            let known = measured.max(view.sent).max(view.resume.unwrap_or(0.0));
            return known - DRAIN * self.step(known, view.asked);
        }
        self.climb(estimate, view, measured.max(view.sent))
    }

    /// A queue stands.
    fn queued(&mut self, estimate: f64, measured: f64, capacity: f64, view: &View) -> f64 {
        self.streak = 0;
        if self.competes(view) {
            return self.compete(estimate, view);
        }
        let ahead = self.ahead(view, capacity);
        let is_deep = ahead > FALLEN * view.target;
        // Packets sent at once have a queue too, and this traffic would not feel it if less were free: see it stand.
        if !(view.busy() || is_deep || view.stale || view.excess) && estimate * OVERDUE > FELT * view.sent {
            self.hurry = self.hurry.max(1);
            return estimate;
        }
        let mut measured = measured;
        if view.stale && view.busy() {
            self.resume = Some(measured);
        } else if view.stale {
            measured = measured.max(view.resume.unwrap_or(0.0));
        }
        if self.free.is_some_and(|free| measured > 1.5 * free || measured < 0.67 * free) {
            self.slope = Slope::default();
            measured = view.through;
        }
        let jump = self.step(measured, view.asked);
        let falling = self.free.is_some_and(|free| measured < free - jump);
        let free = match self.free {
            Some(free) if (free - measured).abs() <= jump => (free + measured) / 2.0,
            _ => measured,
        };
        self.free = Some(free);
        self.proven = free;
        if self.slope.is_learned() {
            self.others = (capacity / free).clamp(1.0, UNKNOWN);
        }
        let is_alone = self.reported.is_some_and(|reported| free > ALONE * reported);
        let is_shared = self.slope.is_learned() && capacity > SHARED * free && !is_alone;
        self.anchor = is_shared.then_some(free);
        // A few packets more or less are no other fall, while a round says what the report did.
        let is_told = self.known(view.asked).is_some_and(|known| (free / known - 1.0).abs() < AS_TOLD);
        let grows = view.rho > 1.15 && view.sent > 1.1 * view.through && !is_told;
        if (grows || free < BELOW * estimate) && is_deep {
            self.hurry = self.hurry.max(3);
            self.slope = Slope::default();
            self.fall(view.asked, estimate, view.through);
            return BELOW * free;
        }
        self.aim(free, capacity, ahead, falling, view)
    }

    /// The queue by now, in s: it has gone on as in the round, but for what W has changed meanwhile.
    fn ahead(&self, view: &View, capacity: f64) -> f64 {
        // A queue that ended within the round seems to drain more slowly than it does.
        let known = self.known(view.asked).map_or(f64::INFINITY, |known| view.sent / known);
        let trend = view.rho.min(known) - 1.0;
        let now = view.asked + Span::from_secs_f64(view.answered_after);
        let parts = self.past.between(view.asked, now);
        parts.fold(view.queue, |queue, (w, seconds)| {
            let more = view.sent * (w / view.wanted - 1.0).clamp(-1.0, 1.0) / capacity;
            (queue + (trend + more) * seconds).max(0.0)
        })
    }

    /// R10: whether the queue is another's: it stands, and takes the bandwidth that W yields.
    fn competes(&mut self, view: &View) -> bool {
        let is_long = view.queue >= STANDING * view.target;
        let begun = Foreign {
            since: view.asked,
            grew: view.asked,
            queue: view.queue,
            through: view.through,
            proven: false,
        };
        let mut foreign = match self.foreign.filter(|foreign| foreign.proven || is_long) {
            Some(foreign) => foreign,
            None if view.queue >= 2.0 * view.target => begun,
            None => {
                self.foreign = None;
                return false;
            }
        };
        if view.queue >= foreign.queue {
            foreign.grew = view.asked;
        }
        foreign.queue = view.queue;
        // One that drains on and on is one's own, or of steady traffic.
        if !foreign.proven && view.asked.since(foreign.grew) > DRAINS {
            foreign = Foreign { grew: foreign.grew, ..begun };
        }
        let stands = view.asked.since(foreign.since) > STANDS;
        foreign.proven |= stands && view.through < TAKEN * foreign.through;
        self.foreign = Some(foreign);
        foreign.proven
    }

    /// R10: a share of it by loss.
    fn compete(&mut self, estimate: f64, view: &View) -> f64 {
        self.free = None;
        self.proven = view.through;
        self.emptied = Some(view.asked);
        if view.excess {
            return BELOW * view.through;
        }
        f64::max(estimate.min(1.1 * view.sent), view.through) + self.step(view.through, view.asked)
    }

    /// R7.
    fn climb(&mut self, estimate: f64, view: &View, from: f64) -> f64 {
        if !view.is_used() {
            // What is sent takes a while to grow after W.
            let is_young =
                self.raised.is_some_and(|raised| view.asked.since(raised).as_secs_f64() < self.cycle);
            let is_low = self.height.is_some_and(|height| estimate < BELOW * height);
            self.tentative |= self.streak > 0 && is_young && is_low;
            return estimate;
        }
        // Later steps upward are still on their way: this round says nothing of them.
        let is_news =
            self.raised.is_none_or(|raised| view.asked > raised + Span::from_secs_f64(self.cycle / 10.0));
        let base = if is_news { estimate.max(from) } else { view.held.max(from).min(estimate.max(from)) };
        let room = (0.5 * self.full / base).min(f64::max(ROOM, self.rtt() / 4.0));
        let is_near = self.crest.is_some_and(|crest| base >= BELOW * crest);
        if is_near
            && !self.dips.were_short(view.asked)
            && self.raised.is_some_and(|raised| view.began < raised)
        {
            return estimate;
        }
        let mut streak = self.streak;
        if view.grows {
            streak = streak.min(1);
            // Far below the height one round with a queue in it is the traffic's own.
            if self.height.is_none_or(|height| base >= BELOW * height) {
                self.streak = streak;
            }
            // More than the path carries is sent already.
            if self.height.is_none() && !self.starting {
                return estimate;
            }
        }
        let gain = match streak {
            n if self.starting => 0.5 * f64::from(1u32 << n.min(8)),
            0 | 1 => 0.0,
            _ if is_near => 0.0,
            n => 0.05 * f64::from(1u32 << (n - 1).min(8)),
        };
        // What the path carried before a fall it often carries again.
        let least = match self.height {
            Some(height) if base < height => KNOWN,
            _ if streak > 4 => 0.1,
            _ => 0.05,
        };
        let most = (room / (self.cycle / 4.0 + self.rtt())).clamp(least, 1.0);
        // While others share the path, W grows by small steps: check for that first.
        let is_near = self.anchor.is_some_and(|anchor| base < BEYOND * anchor);
        self.crest = self.crest.filter(|crest| base < CREST * crest);
        if is_near {
            self.streak = 0;
        } else if is_news {
            self.streak += 1;
        }
        if self.streak > SURE {
            self.hurry = self.hurry.max(1);
        } else {
            self.tentative = self.streak > 0;
        }
        let mut next = base + f64::max(base * gain.min(most), self.step(base, view.asked));
        if let Some(known) = self.known(view.asked) {
            next = if view.grows { next } else { next.max(RETURNS * known) };
            if next > ABOVE_TOLD * known {
                next = estimate.max(ABOVE_TOLD * known);
                // A whole round says whether more comes.
                (self.hurry, self.tentative) =
                    if next > estimate { (self.hurry, self.tentative) } else { (0, false) };
            }
        }
        if let Some(height) = self.height {
            if self.dips.are_short(view.asked) && !view.grows && next < RETURNS * height {
                next = RETURNS * height;
                self.dips.bet(view.asked + Span::from_secs_f64(view.answered_after), estimate, next);
                // The budget of questions lasts for one a second, and one after each fall.
                (self.hurry, self.tentative) = (0, true);
            }
            next = next.min(height.max(base));
            if next >= height {
                (self.height, self.streak, self.crest) = (None, 0, Some(height));
                self.reported = None;
            }
        }
        match self.lid.filter(|lid| next > lid.at && view.asked.since(lid.since) < lid.lasts) {
            Some(lid) => {
                (self.streak, self.hurry, self.tentative) = (0, 0, false);
                estimate.max(lid.at)
            }
            None if next > estimate => {
                self.raised = Some(view.asked + Span::from_secs_f64(view.answered_after));
                next
            }
            None => estimate,
        }
    }

    /// D6, and the goals.
    fn aim(&mut self, free: f64, capacity: f64, ahead: f64, falling: bool, view: &View) -> f64 {
        let (shoot, target) = (self.step(free, view.asked), view.target);
        let full = self.full / view.through;
        let goal = if view.stale { 0.0 } else { target.min(full / 2.0) };
        // An emptied queue is worth more than a steady W: without it nothing is known of the clocks.
        let drain = if view.stale && ahead > target / 2.0 { shoot } else { DRAIN * shoot };
        // That of a fall drains at once.
        let slow = self.rtt.min(0.6);
        let most = if ahead > LONG * target { DEEP } else { TENTH };
        let fast = free * ((ahead - 2.0 * target) / (0.3 + slow / 2.0)).clamp(0.0, most);
        let deep = if self.height.is_some() { fast } else { 0.0 };
        let mut aimed = free + (capacity * (goal - ahead) / self.cycle).clamp(-drain.max(deep), shoot);
        // What is free may be a twentieth more after a report: both are not to be more than a tenth.
        if let Some(known) = self.known(view.asked).filter(|_| ahead <= LONG * target) {
            aimed = aimed.max((1.0 - TENTH) * known);
        }
        if view.stale || ahead > 0.9 * full || ahead > 6.0 * target {
            return aimed;
        }
        let reserve = (3.0 * target).min(0.6 * full);
        self.spent = ahead > reserve || self.spent && ahead > target * 1.25;
        let lift = shoot * 4.0 / 3.0;
        let most = if self.spent || falling { free * 0.98 } else { f64::INFINITY };
        let least = free.min(most) / (1.0 - if most.is_finite() { 0.0 } else { 0.03 });
        let need = self.needs.iter().rev().find(|need| **need <= least);
        need.map_or(aimed, |need| aimed.max((need * (1.0 + self.settings.margin)).min(most).min(free + lift)))
    }
}

#[cfg(test)]
mod falls;
#[cfg(test)]
mod tests;

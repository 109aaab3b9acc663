//! What a path does again and again: its queue goes to and fro, its capacity falls for a moment, loss comes where none shows.

use crate::time::{Span, Time};

/// Weight of the last round in w.
const WEIGHT: f64 = 0.125;
/// A queue stands above so many times w, but above no more than `OF_FULL` of what overflows, or than half of what W keeps there if
/// it is W's own steps that make it go to and fro.
const OF_SWAY: f64 = 3.0;
const OF_FULL: f64 = 0.75;
const OF_FULL_OWN: f64 = 0.25;
/// What T_r - T_s of a short round means nothing, as a multiple of w.
const NOTHING: f64 = 2.0;
/// A fall is over when so many times what came through in it comes.
const OVER: f64 = 1.3;
/// And was short when that is seen so soon.
const SOON: Span = Span::from_millis(1_500);
/// How long a short fall is remembered.
const REMEMBERED: Span = Span::from_secs(30);
/// Share of what W came back to that must come for the bet to be won.
const WON: f64 = 0.6;
/// A quarter of how long there is no other bet after the second in a row that was lost; twice as long after each more, up to so
/// many.
const WAITS: Span = Span::from_secs(1);
const MOST_LOST: u32 = 6;

/// How long W stays below what came when a queue that does not show lost packets, the first time: it may have been chance.
const LID: Span = Span::from_secs(2);
/// The same after several times in a row.
const LONGEST_LID: Span = Span::from_secs(16);
/// Part of a lid that the next one may be away from it, and how long after it, to be the same queue's.
const AGAIN: f64 = 0.1;
const AGAIN_WITHIN: Span = Span::from_secs(60);

/// R11: how far the queue goes to and fro, w: the mean of the lesser of two changes in a row, from round to round, that go
/// opposite ways. A queue that only grows, or only drains, has none.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sway {
    queue: f64,
    change: f64,
    w: f64,
}

impl Sway {
    /// After a round that ends with `queue`, in s.
    pub(super) fn see(&mut self, queue: f64) {
        let change = queue - self.queue;
        let turned = if change * self.change < 0.0 { change.abs().min(self.change.abs()) } else { 0.0 };
        self.w += WEIGHT * (turned - self.w);
        (self.queue, self.change) = (queue, change);
    }

    /// The last change was that of a fall: no other is its way back.
    pub(super) fn fell(&mut self) {
        self.change = 0.0;
    }

    /// Queue in s that is none yet, where one of `full` seconds overflows; it is W's `own` steps that move it, or the path.
    pub(super) fn empty(&self, full: f64, own: bool) -> f64 {
        let most = if own { OF_FULL_OWN } else { OF_FULL };
        (OF_SWAY * self.w).min(most * full)
    }

    /// q* in s.
    pub(super) fn target(&self) -> f64 {
        2.0 * OF_SWAY * self.w
    }

    /// T_r / T_s of a short round of `span` seconds, without what the queue changes anyhow.
    pub(super) fn steadied(&self, rho: f64, span: f64) -> f64 {
        let change = rho - 1.0;
        1.0 + change.signum() * (change.abs() - NOTHING * self.w / span.max(1e-3)).max(0.0)
    }
}

/// R12: whether the capacity comes back soon after a fall.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Dips {
    /// A fall that is not over, and what came through in it.
    fell: Option<(Time, f64)>,
    /// It began near the height that W knows.
    was_high: bool,
    /// When the last one was over, and was short.
    short: Option<Time>,
    /// The same, whatever became of bets since.
    was_short: Option<Time>,
    bet: Option<Bet>,
    /// Bets in a row that a fall ended before a round had shown what they were.
    undecided: u8,
    /// Bets in a row that were lost, and when the last one was.
    lost: (u32, Time),
}

/// W has come back because falls are short, until a round shows whether this one was.
#[derive(Clone, Copy, Debug)]
struct Bet {
    since: Time,
    /// W before it, and what it came back to.
    from: f64,
    to: f64,
}

impl Dips {
    /// A fall at `now` from near the height that W knows, or not, in which `through` came. It may be the
    /// next one, or what the bet has done: the second in a row is lost.
    pub(super) fn fall(&mut self, now: Time, through: f64, was_high: bool) {
        self.short = self.short.filter(|over| now.since(*over) <= REMEMBERED);
        if self.bet.take().is_some() {
            self.undecided += 1;
            if self.undecided > 1 {
                self.lose(now);
            }
        }
        let fell = self.fell.filter(|(fell, _)| now.since(*fell) < SOON);
        self.was_high = was_high || fell.is_some() && self.was_high;
        self.fell = fell.or(Some((now, through)));
    }

    /// A round of `span` seconds that began after the last fall and was asked for at `asked`, in which `received` came.
    pub(super) fn see(&mut self, asked: Time, span: f64, received: f64) {
        if let Some(bet) = self.bet.take_if(|bet| asked >= bet.since + Span::from_secs_f64(span)) {
            if received > WON * bet.to {
                (self.undecided, self.lost.0) = (0, 0);
            } else {
                self.lose(asked);
            }
        }
        if let Some((fell, _)) =
            self.fell.take_if(|(fell, through)| asked > *fell && received > OVER * *through)
        {
            self.short = (asked.since(fell) < SOON).then_some(asked);
            self.was_short = self.short.or(self.was_short);
        }
    }

    /// The last fall was to `through`.
    pub(super) fn correct(&mut self, through: f64) {
        if let Some((_, before)) = &mut self.fell {
            *before = through;
        }
    }

    fn lose(&mut self, now: Time) {
        (self.short, self.bet, self.undecided) = (None, None, 0);
        self.lost = (self.lost.0 + 1, now);
    }

    /// W comes back `from` one value `to` another although this fall may not be over.
    pub(super) fn bet(&mut self, now: Time, from: f64, to: f64) {
        self.bet = Some(Bet { since: now, from, to });
    }

    /// Answers are overdue: an open bet is lost. W before it.
    pub(super) fn overdue(&mut self, now: Time) -> Option<f64> {
        let bet = self.bet?;
        self.lose(now);
        Some(bet.from)
    }

    /// One was short, not long ago.
    pub(super) fn were_short(&self, now: Time) -> bool {
        self.was_short.is_some_and(|over| now.since(over) <= REMEMBERED)
    }

    /// The last one was short, this one began near the height, and bets were not lost of late.
    pub(super) fn are_short(&self, now: Time) -> bool {
        let (lost, since) = self.lost;
        let waits = WAITS.mul_f64(f64::from(1u32 << lost.min(MOST_LOST)));
        self.short.is_some() && self.was_high && (lost <= 1 || now.since(since) >= waits)
    }
}

/// How far W may grow below a queue that does not show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lid {
    pub(super) at: f64,
    pub(super) since: Time,
    pub(super) lasts: Span,
}

impl Lid {
    /// One more, from `since` on.
    pub(super) fn again(before: Option<Self>, at: f64, since: Time) -> Self {
        let is_same = |before: &Self| {
            (at / before.at - 1.0).abs() <= AGAIN && since.since(before.since) <= AGAIN_WITHIN
        };
        let same = before.filter(is_same);
        let lasts = same.map_or(LID, |before| LONGEST_LID.min(before.lasts + before.lasts));
        Self { at, since, lasts }
    }
}

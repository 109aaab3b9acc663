//! R1 to R3: which losses are the path's own, and which are those of a queue.

/// How many packets the path's share of loss is remembered for.
const MEMORY: f64 = 2000.0;
/// Most that is taken for the path's own.
const MOST: f64 = 0.5;
/// Standard deviations of a binomial count above its mean, and packets more, that chance explains.
const SIGMAS: f64 = 3.0;
/// The same, where one round decides for half an hour.
const CERTAIN_SIGMAS: f64 = 5.0;
const SLACK: f64 = 1.5;
/// Share that a path may lose of which nothing is known, as if it had been seen in so many packets, until so many were.
const UNKNOWN: f64 = 0.05;
const PRIOR: f64 = 40.0;
const PRIOR_FOR: f64 = 200.0;
/// Packets that a round must have lost if the share of the one before were the path's, to say that it is not.
const TELLING: f64 = 4.0;

/// The share of packets that the path loses without a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    packets: f64,
    lost: f64,
    /// Of those that the path is not known to carry, the one that sent least.
    unproven: Option<Unproven>,
    suspect: Option<Suspect>,
    /// Packets sent and lost in rounds after the suspect one that sent less.
    after: (f64, f64),
}

/// A round without a queue: what it sent in bit/s, its packets and losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unproven {
    pub(super) sent: f64,
    pub(super) packets: f64,
    pub(super) lost: f64,
}

/// A round that lost more than chance explains, without a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspect {
    /// S and R of the round, bit/s.
    pub(super) sent: f64,
    pub(super) received: f64,
    pub(super) packets: f64,
    pub(super) lost: f64,
    /// W before it.
    pub(super) estimate: f64,
}

/// What a round without excess says of a suspect one before it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Acquittal {
    /// There is none, or it stays.
    None,
    /// Too few packets were sent to tell.
    Open,
    /// It was chance, because as much was sent, and it came: W before it.
    Restored(f64),
    /// Less was sent, and nothing was lost: what came in it.
    Guilty(f64),
}

impl Suspect {
    fn share(&self) -> f64 {
        self.lost / self.packets.max(1.0)
    }

    /// Whether `next`, a round with excess too, shows that the loss does not depend on what is sent: less was sent, and the
    /// share that was lost is nearer to the one before than to what a full path, which carries what came before, would lose
    /// of it, or more was sent and at least half of what is more came. Where both are nearly the same it shows nothing.
    fn is_of_the_path(&self, next: &Self) -> bool {
        let (before, share) = (self.share(), next.share());
        let full = (1.0 - self.received / next.sent.max(1.0)).clamp(0.0, before);
        let less = next.sent <= 0.99 * self.sent && full <= 0.75 * before && share >= 0.5 * (before + full);
        let marginal = (next.received - self.received) / (next.sent - self.sent);
        less || next.sent >= 1.03 * self.sent && marginal >= 0.5 * (1.0 - share)
    }
}

impl Noise {
    /// R1: p0.
    pub(super) fn share(&self) -> f64 {
        (self.lost / self.packets.max(1.0)).min(MOST)
    }

    /// R2: whether losing `lost` of `packets` is more than chance does. Without a queue, while nothing is known of the path's
    /// share, it may be `UNKNOWN`.
    pub(super) fn exceeds(&self, packets: f64, lost: f64, standing: bool) -> bool {
        let unknown = if standing { 0.0 } else { PRIOR * (1.0 - self.packets / PRIOR_FOR).max(0.0) };
        let share = (self.lost + unknown * UNKNOWN) / (self.packets + unknown).max(1.0);
        beyond(SIGMAS, share.min(MOST), packets, lost)
    }

    /// Whether it is so much more that a queue has overflowed.
    pub(super) fn overflows(&self, packets: f64, lost: f64) -> bool {
        beyond(CERTAIN_SIGMAS, self.share(), packets, lost)
    }

    /// Takes a round without a queue.
    pub(super) fn absorb(&mut self, packets: f64, lost: f64) {
        let keep = libm::exp(-packets / MEMORY);
        self.packets = self.packets * keep + packets;
        self.lost = self.lost * keep + lost;
    }

    /// R1a: takes a round without a queue once the path is known to carry what it sent: `carried` at least, by now.
    pub(super) fn absorb_carried(&mut self, round: Unproven, carried: f64) {
        if let Some(before) = self.unproven.take_if(|before| before.sent <= carried) {
            self.absorb(before.packets, before.lost);
        }
        if round.sent <= carried {
            self.absorb(round.packets, round.lost);
        } else if self.unproven.is_none_or(|before| round.sent < before.sent) {
            self.unproven = Some(round);
        }
    }

    /// R3: a round with excess but no queue. When it clears the suspicion on the round before it, both are taken in, and
    /// the larger W of the two comes back.
    pub(super) fn judge(&mut self, round: Suspect, used: f64) -> Option<f64> {
        match self.suspect.filter(|before| before.is_of_the_path(&round)) {
            Some(before) => {
                self.absorb(before.packets, before.lost);
                self.absorb(round.packets, round.lost);
                self.suspect = None;
                Some(round.estimate.max(before.estimate))
            }
            None => {
                // What was not used was not too much: W before all such rounds in a row is what comes back.
                let unused = self.suspect.filter(|before| before.sent < used * before.estimate);
                let estimate = unused.map_or(round.estimate, |before| before.estimate.max(round.estimate));
                self.suspect = Some(Suspect { estimate, ..round });
                self.after = (0.0, 0.0);
                None
            }
        }
    }

    /// A round without excess or queue after a suspect one. Such rounds count together.
    pub(super) fn acquit(&mut self, sent: f64, packets: f64, lost: f64, used: f64) -> Acquittal {
        let Some(before) = self.suspect.take() else { return Acquittal::None };
        self.after = (self.after.0 + packets, self.after.1 + lost);
        let (packets, lost) = self.after;
        let expected = packets * before.share();
        let was_unused = before.sent < used * before.estimate && sent >= 0.85 * before.sent;
        if sent >= 0.98 * before.sent || was_unused {
            Acquittal::Restored(before.estimate)
        } else if expected < TELLING {
            self.suspect = Some(before);
            Acquittal::Open
        } else if lost > expected / 4.0 {
            self.suspect = Some(before);
            Acquittal::None
        } else {
            Acquittal::Guilty(before.received / (1.0 - self.share()))
        }
    }

    /// A queue has taken W to `estimate` since: more does not come back when the suspicion is cleared.
    pub(super) fn bound(&mut self, estimate: f64) {
        if let Some(suspect) = &mut self.suspect {
            suspect.estimate = suspect.estimate.min(estimate);
        }
    }

    pub(super) const fn suspects(&self) -> bool {
        self.suspect.is_some()
    }

    /// Nothing of the past compares with what comes.
    pub(super) fn forget_suspicion(&mut self) {
        (self.suspect, self.unproven) = (None, None);
    }
}

/// Whether `lost` of `packets` is so far above a binomial count of `share`.
fn beyond(sigmas: f64, share: f64, packets: f64, lost: f64) -> bool {
    let mean = packets * share;
    lost > mean + sigmas * libm::sqrt(mean * (1.0 - share)) + SLACK
}

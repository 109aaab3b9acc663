//! The retransmission queue: what is outstanding, SACKed, lost, sent again (RFC 6675 section 3).

use std::collections::VecDeque;

/// RFC 6675 DupThresh.
pub(super) const DUP_THRESH: u32 = 3;

/// State of a segment.
mod segment {
    pub(super) const SACKED: u8 = 1;
    pub(super) const LOST: u8 = 2;
    /// Sent again since it was last marked lost.
    pub(super) const RETRANSMITTED: u8 = 4;
    /// Sent again at any time, as Linux's `TCPCB_EVER_RETRANS`.
    pub(super) const EVER_RETRANSMITTED: u8 = 8;
}

/// Segments from the first not acknowledged to the last sent. All are full but the last, so that a place in the queue
/// follows from an offset and the MSS.
///
/// As long as nothing is known of any of them, a count is enough.
#[derive(Default)]
pub(super) struct Scoreboard {
    /// First offset not acknowledged.
    pub(super) una: u64,
    outstanding: u32,
    /// SACKed segments; without SACK, duplicate acknowledgements that stand for them.
    pub(super) sacked: u32,
    known: Option<Box<Known>>,
}

/// What is known of outstanding segments.
struct Known {
    /// One byte per segment.
    queue: VecDeque<u8>,
    /// Segments marked lost.
    lost: u32,
    /// Segments sent again that are neither acknowledged nor SACKed.
    retransmitted: u32,
    /// Lost segments that have not been sent again.
    lost_pending: u32,
    /// No lost segment to send again lies before this place in the queue.
    search_from: u32,
    /// SACKed ranges of offsets, ascending.
    sacked_ranges: Vec<(u64, u64)>,
    /// Everything not SACKed below it has been marked lost.
    lost_edge: u64,
}

impl Scoreboard {
    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    pub(super) fn is_empty(&self) -> bool {
        self.outstanding == 0
    }

    /// Segments marked lost.
    pub(super) fn lost(&self) -> u32 {
        self.known.as_ref().map_or(0, |known| known.lost)
    }

    pub(super) fn has_lost_pending(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.lost_pending > 0)
    }

    /// Whether the first outstanding segment has been sent again.
    pub(super) fn head_is_retransmitted(&self) -> bool {
        let head = self.known.as_ref().and_then(|known| known.queue.front());
        head.is_some_and(|state| state & segment::RETRANSMITTED != 0)
    }

    /// RFC 6675 pipe, in segments, when `discounted` segments count as having left the network.
    pub(super) fn pipe(&self, discounted: u32) -> u32 {
        let (retransmitted, lost) = self.known.as_ref().map_or((0, 0), |k| (k.retransmitted, k.lost));
        (self.outstanding + retransmitted).saturating_sub(discounted + lost)
    }

    /// A new segment has been sent.
    pub(super) fn push(&mut self) {
        self.outstanding += 1;
        if let Some(known) = &mut self.known {
            known.queue.push_back(0);
        }
    }

    /// Takes `segments` off the queue, acknowledged up to `ack`. True when one of them had been sent again.
    pub(super) fn acknowledge(&mut self, ack: u64, segments: u32, sack: bool) -> bool {
        self.outstanding = self.outstanding.saturating_sub(segments);
        self.una = ack;
        let (mut removed_sacked, mut any_retransmitted) = (0, false);
        if let Some(known) = &mut self.known {
            (removed_sacked, any_retransmitted) = known.acknowledge(ack, segments);
            if known.is_nothing() {
                self.known = None;
            }
        }
        if sack {
            self.sacked -= removed_sacked;
        } else {
            // Duplicates stood for segments that this acknowledgement covers, all but the one that filled the hole.
            self.sacked = self.sacked.saturating_sub(segments.saturating_sub(1)).min(self.outstanding);
        }
        any_retransmitted
    }

    fn known(&mut self) -> &mut Known {
        self.known.get_or_insert_with(|| {
            Box::new(Known {
                queue: VecDeque::from(vec![0; self.outstanding as usize]),
                lost: 0,
                retransmitted: 0,
                lost_pending: 0,
                search_from: 0,
                sacked_ranges: Vec::new(),
                lost_edge: self.una,
            })
        })
    }

    /// Marks what of [start, end) is not yet known to be SACKed, and joins it to the ranges.
    ///
    /// What was sent again leaves the pipe with it; where `keeps_resent`, with the cumulative acknowledgement only (ns-3).
    pub(super) fn sack(&mut self, start: u64, end: u64, mss: u64, keeps_resent: bool) {
        let una = self.una;
        self.sacked += self.known().sack(una, start, end, mss, keeps_resent);
    }

    /// RFC 6675 IsLost: a segment below DupThresh SACKed segments is lost.
    pub(super) fn mark_lost_by_sack(&mut self, mss: u64) {
        if self.sacked >= DUP_THRESH {
            let una = self.una;
            self.known().mark_lost_by_sack(una, mss);
        }
    }

    /// Marks the first segment lost.
    pub(super) fn mark_head_lost(&mut self, mss: u64) {
        let una = self.una;
        self.known().mark_lost(una, una, una + 1, mss);
    }

    /// Whether the segment at a place was SACKed.
    pub(super) fn is_sacked(&self, at: usize) -> bool {
        self.state(at) & segment::SACKED != 0
    }

    /// Whether the segment at a place has been sent again since it was last marked lost.
    pub(super) fn is_retransmitted(&self, at: usize) -> bool {
        self.state(at) & segment::RETRANSMITTED != 0
    }

    /// Whether the segment at a place has ever been sent again.
    pub(super) fn is_ever_retransmitted(&self, at: usize) -> bool {
        self.state(at) & segment::EVER_RETRANSMITTED != 0
    }

    /// Whether the segment at a place was SACKed, or is lost and has not been sent again.
    pub(super) fn is_settled(&self, at: usize) -> bool {
        let state = self.state(at);
        state & segment::SACKED != 0 || state & (segment::LOST | segment::RETRANSMITTED) == segment::LOST
    }

    fn state(&self, at: usize) -> u8 {
        self.known.as_ref().and_then(|known| known.queue.get(at)).copied().unwrap_or_default()
    }

    /// Marks the segment at a place lost, again if it has been sent again.
    pub(super) fn mark_lost_at(&mut self, at: usize) {
        if !self.is_settled(at) {
            self.known().mark_lost_at(at);
        }
    }

    /// Nothing is lost: a timeout was spurious.
    pub(super) fn unmark_lost(&mut self) {
        let una = self.una;
        if let Some(known) = &mut self.known {
            known.unmark_lost(una);
        }
    }

    /// After a timeout: everything up to `next` that is not SACKed is lost and has not been sent again.
    pub(super) fn mark_all_lost(&mut self, next: u64) {
        self.known().mark_all_lost(next);
    }

    /// Place of the first lost segment that has not been sent again; it counts as sent from now on.
    pub(super) fn take_lost(&mut self) -> Option<usize> {
        self.known.as_mut()?.take_lost()
    }

    /// RFC 6675 NextSeg rule 3: place of the first segment below the highest SACK of which nothing is known.
    pub(super) fn take_unknown(&mut self, mss: u64) -> Option<usize> {
        let una = self.una;
        self.known.as_mut()?.take_unknown(una, mss)
    }

    /// Place of the first outstanding segment, unless it has been sent again.
    pub(super) fn take_head(&mut self) -> Option<usize> {
        if self.is_empty() || self.head_is_retransmitted() {
            return None;
        }
        self.known().resend(0);
        Some(0)
    }

    /// Place of the last outstanding segment, unless something is known of it.
    pub(super) fn take_last(&mut self) -> Option<usize> {
        let at = self.outstanding.checked_sub(1)? as usize;
        if self.state(at) != 0 {
            return None;
        }
        self.known().resend(at);
        Some(at)
    }

    /// RFC 6675 NextSeg rule 4: place of the last segment that is not SACKed, unless it is lost or sent again.
    pub(super) fn take_rescue(&mut self) -> Option<usize> {
        if self.is_empty() { None } else { self.known().take_rescue() }
    }
}

impl Known {
    /// Takes `segments` off the queue; says how many of them were SACKed, and whether one had been sent again.
    fn acknowledge(&mut self, ack: u64, segments: u32) -> (u32, bool) {
        let mut removed_sacked = 0;
        let mut any_retransmitted = false;
        for _ in 0..segments {
            let Some(state) = self.queue.pop_front() else { break };
            if state == 0 {
                continue;
            }
            if state & segment::SACKED != 0 {
                removed_sacked += 1;
            }
            any_retransmitted |= state & (segment::SACKED | segment::RETRANSMITTED) == segment::RETRANSMITTED;
            self.forget(state);
        }
        self.search_from = self.search_from.saturating_sub(segments);
        self.lost_edge = self.lost_edge.max(ack);
        self.sacked_ranges.retain(|&(_, end)| end > ack);
        (removed_sacked, any_retransmitted)
    }

    fn is_nothing(&self) -> bool {
        self.lost == 0 && self.retransmitted == 0 && self.sacked_ranges.is_empty()
    }

    /// Takes a segment's losses and retransmissions out of the counts.
    fn forget(&mut self, state: u8) {
        if state & segment::LOST != 0 {
            self.lost -= 1;
            if state & segment::RETRANSMITTED == 0 {
                self.lost_pending -= 1;
            }
        }
        if state & segment::RETRANSMITTED != 0 {
            self.retransmitted -= 1;
        }
    }

    /// Returns how many segments are newly SACKed.
    fn sack(&mut self, una: u64, start: u64, end: u64, mss: u64, keeps_resent: bool) -> u32 {
        let first = self.sacked_ranges.partition_point(|&(_, e)| e < start);
        let mut last = first;
        let mut from = start;
        let mut newly = 0;
        let (mut low, mut high) = (start, end);
        while let Some(&(s, e)) = self.sacked_ranges.get(last).filter(|(s, _)| *s <= end) {
            if from < s {
                newly += self.mark_sacked(una, from, s.min(end), mss, keeps_resent);
            }
            from = from.max(e);
            low = low.min(s);
            high = high.max(e);
            last += 1;
        }
        if from < end {
            newly += self.mark_sacked(una, from, end, mss, keeps_resent);
        }
        self.sacked_ranges.splice(first..last, [(low, high)]);
        newly
    }

    fn mark_sacked(&mut self, una: u64, start: u64, end: u64, mss: u64, keeps_resent: bool) -> u32 {
        let from = ((start - una) / mss) as usize;
        let to = ((end - una).div_ceil(mss) as usize).min(self.queue.len());
        let mut newly = 0;
        for at in from..to {
            let state = self.queue[at];
            if state & segment::SACKED == 0 {
                self.forget(state);
                self.queue[at] = segment::SACKED;
                if keeps_resent && state & segment::RETRANSMITTED != 0 {
                    self.resend(at);
                }
                newly += 1;
            }
        }
        newly
    }

    fn mark_lost_by_sack(&mut self, una: u64, mss: u64) {
        let mut needed = u64::from(DUP_THRESH) * mss;
        let mut edge = None;
        for &(start, end) in self.sacked_ranges.iter().rev() {
            if end - start >= needed {
                edge = Some(end - needed);
                break;
            }
            needed -= (end - start).next_multiple_of(mss).min(needed);
            if needed == 0 {
                // The last segment of the flow is short.
                edge = Some(start);
                break;
            }
        }
        if let Some(edge) = edge.filter(|edge| *edge > self.lost_edge) {
            self.mark_lost(una, self.lost_edge, edge, mss);
            self.lost_edge = edge;
        }
    }

    /// Marks the segments from `start` to `end` lost that are not SACKed nor already sent again.
    fn mark_lost(&mut self, una: u64, start: u64, end: u64, mss: u64) {
        let from = ((start.max(una) - una) / mss) as usize;
        let to = ((end - una).div_ceil(mss) as usize).min(self.queue.len());
        for state in self.queue.range_mut(from.min(to)..to) {
            if *state == 0 {
                *state = segment::LOST;
                self.lost += 1;
                self.lost_pending += 1;
            }
        }
        self.search_from = self.search_from.min(from as u32);
    }

    fn mark_lost_at(&mut self, at: usize) {
        let state = self.queue[at];
        self.forget(state);
        self.queue[at] = segment::LOST | state & segment::EVER_RETRANSMITTED;
        self.lost += 1;
        self.lost_pending += 1;
        self.search_from = self.search_from.min(at as u32);
    }

    fn mark_all_lost(&mut self, next: u64) {
        self.lost = 0;
        for state in &mut self.queue {
            if *state & segment::SACKED == 0 {
                *state = segment::LOST | *state & segment::EVER_RETRANSMITTED;
                self.lost += 1;
            } else {
                *state = segment::SACKED;
            }
        }
        self.retransmitted = 0;
        self.lost_pending = self.lost;
        self.search_from = 0;
        self.lost_edge = next;
    }

    fn unmark_lost(&mut self, una: u64) {
        for state in &mut self.queue {
            *state &= !segment::LOST;
        }
        self.lost = 0;
        self.lost_pending = 0;
        self.lost_edge = una;
    }

    fn take_lost(&mut self) -> Option<usize> {
        let from = self.search_from as usize;
        let wanted = |state: &u8| state & (segment::LOST | segment::RETRANSMITTED) == segment::LOST;
        let at = from + self.queue.iter().skip(from).position(wanted)?;
        self.lost_pending -= 1;
        self.search_from = at as u32 + 1;
        self.resend(at);
        Some(at)
    }

    fn take_unknown(&mut self, una: u64, mss: u64) -> Option<usize> {
        let highest = self.sacked_ranges.last().map_or(una, |&(_, end)| end);
        let below = ((highest - una) / mss) as usize;
        let at = self.queue.iter().take(below).position(|state| *state == 0)?;
        self.resend(at);
        Some(at)
    }

    fn take_rescue(&mut self) -> Option<usize> {
        let at = self.queue.iter().rposition(|state| state & segment::SACKED == 0)?;
        if self.queue[at] != 0 {
            return None;
        }
        self.resend(at);
        Some(at)
    }

    fn resend(&mut self, at: usize) {
        self.queue[at] |= segment::RETRANSMITTED | segment::EVER_RETRANSMITTED;
        self.retransmitted += 1;
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::rng::Stream;

    use super::*;

    const MSS: u64 = 1000;

    fn sent(segments: u32) -> Scoreboard {
        let mut board = Scoreboard::default();
        (0..segments).for_each(|_| board.push());
        board
    }

    /// RFC 6675 section 4: ten segments, 2 to 4 SACKed: segment 1 (offset 0) is lost, pipe is 10 - 3 - 1.
    #[test]
    fn three_sacked_segments_make_a_hole_lost() {
        let mut board = sent(10);
        board.sack(1000, 3000, MSS, false);
        board.mark_lost_by_sack(MSS);
        assert_eq!((board.sacked, board.lost(), board.pipe(board.sacked)), (2, 0, 8));
        board.sack(1000, 4000, MSS, false);
        board.mark_lost_by_sack(MSS);
        assert_eq!((board.sacked, board.lost(), board.pipe(board.sacked)), (3, 1, 6));
        assert_eq!(board.take_lost(), Some(0));
        assert_eq!((board.take_lost(), board.pipe(board.sacked)), (None, 7));
    }

    #[test]
    fn acknowledging_takes_every_count_back() {
        let mut board = sent(6);
        board.sack(2000, 5000, MSS, false);
        board.mark_lost_by_sack(MSS);
        assert_eq!(board.take_lost(), Some(0));
        assert!(board.acknowledge(5000, 5, true));
        assert_eq!((board.outstanding(), board.sacked, board.lost(), board.pipe(0)), (1, 0, 0, 1));
        assert!(!board.has_lost_pending());
    }

    #[test]
    fn a_timeout_keeps_sacks_and_sends_the_rest_again_in_order() {
        let mut board = sent(4);
        board.sack(1000, 2000, MSS, false);
        board.mark_all_lost(4000);
        assert_eq!([board.take_lost(), board.take_lost(), board.take_lost()], [Some(0), Some(2), Some(3)]);
        assert_eq!(board.take_lost(), None);
    }

    /// What arrives late may be the first retransmission.
    #[test]
    fn a_segment_lost_again_stays_sent_again() {
        let mut board = sent(3);
        board.mark_lost_at(0);
        assert!(!board.is_ever_retransmitted(0));
        assert_eq!(board.take_lost(), Some(0));
        board.mark_lost_at(0);
        assert_eq!([board.is_retransmitted(0), board.is_ever_retransmitted(0)], [false, true]);
        board.mark_all_lost(3000);
        assert_eq!([0, 1].map(|at| board.is_ever_retransmitted(at)), [true, false]);
    }

    #[test]
    fn rescue_is_the_last_segment_of_which_nothing_is_known() {
        let mut board = sent(5);
        board.sack(1000, 2000, MSS, false);
        assert_eq!(board.take_unknown(MSS), Some(0));
        assert_eq!(board.take_unknown(MSS), None);
        assert_eq!(board.take_rescue(), Some(4));
        assert_eq!(board.take_rescue(), None);
    }

    /// RFC 6675 section 3, word for word, over a list of segments.
    #[derive(Default)]
    struct Model {
        una: u64,
        segments: Vec<Segment>,
    }

    #[derive(Clone, Copy, Default)]
    struct Segment {
        is_sacked: bool,
        is_lost: bool,
        is_sent_again: bool,
    }

    impl Model {
        fn count(&self, which: impl Fn(&Segment) -> bool) -> u32 {
            self.segments.iter().filter(|segment| which(segment)).count() as u32
        }

        fn sack(&mut self, start: u64, end: u64) {
            for at in (start - self.una) / MSS..(end - self.una) / MSS {
                self.segments[at as usize] = Segment { is_sacked: true, ..Segment::default() };
            }
        }

        /// IsLost: DupThresh SACKed segments lie above. What has been sent again is not lost again.
        fn mark_lost_by_sack(&mut self) {
            for at in 0..self.segments.len() {
                let above = self.segments[at..].iter().filter(|segment| segment.is_sacked).count() as u32;
                let segment = &mut self.segments[at];
                segment.is_lost |= !segment.is_sacked && !segment.is_sent_again && above >= DUP_THRESH;
            }
        }

        fn mark_all_lost(&mut self) {
            for segment in self.segments.iter_mut().filter(|segment| !segment.is_sacked) {
                *segment = Segment { is_lost: true, ..Segment::default() };
            }
        }

        /// RFC 8985: a segment is lost, and may be lost again once it has been sent again.
        fn mark_lost_at(&mut self, at: usize) {
            if !self.segments[at].is_sacked {
                self.segments[at] = Segment { is_lost: true, ..Segment::default() };
            }
        }

        /// SetPipe: what is neither SACKed nor lost, and what was sent again.
        fn pipe(&self) -> u32 {
            self.count(|s| !s.is_sacked && !s.is_lost) + self.count(|s| s.is_sent_again)
        }

        fn take(&mut self, at: Option<usize>) -> Option<usize> {
            self.segments[at?].is_sent_again = true;
            at
        }

        /// NextSeg rules 1, 3 and 4.
        fn take_lost(&mut self) -> Option<usize> {
            let at = self.segments.iter().position(|s| s.is_lost && !s.is_sent_again);
            self.take(at)
        }

        fn take_unknown(&mut self) -> Option<usize> {
            let highest = self.segments.iter().rposition(|s| s.is_sacked)?;
            let unknown = |s: &Segment| !s.is_sacked && !s.is_lost && !s.is_sent_again;
            let at = self.segments[..highest].iter().position(unknown);
            self.take(at)
        }

        fn take_rescue(&mut self) -> Option<usize> {
            let last = self.segments.iter().rposition(|s| !s.is_sacked)?;
            let segment = self.segments[last];
            self.take(Some(last).filter(|_| !segment.is_lost && !segment.is_sent_again))
        }
    }

    fn sack_both(model: &mut Model, board: &mut Scoreboard, start: u64, end: u64) {
        let una = model.una;
        model.sack(una + start * MSS, una + end * MSS);
        board.sack(una + start * MSS, una + end * MSS, MSS, false);
    }

    /// Whatever comes, in any order, the scoreboard and RFC 6675 agree on what is lost, in flight, and sent next.
    #[test]
    fn any_sequence_of_events_is_that_of_rfc_6675() {
        let mut taken = [0; 3];
        for seed in 0..400 {
            let mut random = Stream::new(seed, 0, "scoreboard");
            let mut below = |most: usize| random.below(most as u64) as usize;
            let (mut model, mut board) = (Model::default(), Scoreboard::default());
            for step in 0..120 {
                let outstanding = model.segments.len();
                match below(10) {
                    0 | 1 => {
                        for _ in 0..=below(5) {
                            model.segments.push(Segment::default());
                            board.push();
                        }
                    }
                    2 if outstanding > 1 => {
                        let count = below(outstanding.min(6));
                        let any = model.segments.drain(..count).any(|segment| segment.is_sent_again);
                        model.una += count as u64 * MSS;
                        assert_eq!(board.acknowledge(model.una, count as u32, true), any);
                    }
                    3..=5 if outstanding > 1 => {
                        // The first is what the receiver waits for.
                        let start = 1 + below(outstanding - 1);
                        let end = (start + 1 + below(4)).min(outstanding);
                        sack_both(&mut model, &mut board, start as u64, end as u64);
                        model.mark_lost_by_sack();
                        board.mark_lost_by_sack(MSS);
                    }
                    6 => {
                        assert_eq!(board.take_lost(), model.take_lost(), "seed {seed}, step {step}");
                        taken[0] += 1;
                    }
                    7 if outstanding > 0 && below(2) == 0 => {
                        let (unknown, expected) = (board.take_unknown(MSS), model.take_unknown());
                        assert_eq!(unknown, expected, "seed {seed}, step {step}");
                        taken[1] += u32::from(unknown.is_some());
                        let (rescue, expected) = (board.take_rescue(), model.take_rescue());
                        assert_eq!(rescue, expected, "seed {seed}, step {step}");
                        taken[2] += u32::from(rescue.is_some());
                    }
                    9 if outstanding > 0 => {
                        let at = below(outstanding);
                        model.mark_lost_at(at);
                        board.mark_lost_at(at);
                    }
                    8 if below(4) == 0 => {
                        model.mark_all_lost();
                        board.mark_all_lost(model.una + outstanding as u64 * MSS);
                    }
                    _ => {}
                }
                let expected = (
                    model.segments.len() as u32,
                    model.count(|s| s.is_sacked),
                    model.count(|s| s.is_lost),
                    model.pipe(),
                    model.count(|s| s.is_lost && !s.is_sent_again) > 0,
                    model.segments.first().is_some_and(|s| s.is_sent_again),
                );
                let seen = (
                    board.outstanding(),
                    board.sacked,
                    board.lost(),
                    board.pipe(board.sacked),
                    board.has_lost_pending(),
                    board.head_is_retransmitted(),
                );
                assert_eq!(seen, expected, "seed {seed}, step {step}");
            }
        }
        assert!(taken.iter().all(|count| *count > 50), "{taken:?}");
    }
}

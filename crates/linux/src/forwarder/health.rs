//! What the machine did not manage.

use bandmaster_core::sketch::Histogram;
use bandmaster_core::time::Span;

/// How well the forwarder kept the time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// How late packets were handed over, in ns, without those that the packet ahead of them held up.
    pub lateness: Histogram,
    /// Packets handed over later than their time by more than 1 ms.
    pub late: u64,
    /// Longest lateness.
    pub latest: Span,
    /// Packets handed over.
    pub packets: u64,
    /// Packets that came while there was no room for them.
    pub unread: u64,
    /// True when the thread runs before all ordinary ones.
    pub real_time: bool,
}

/// More late packets than this make a remark.
const LATE_SHARE: f64 = 0.01;
/// A packet that is later than this makes a remark: one of the machine's pauses.
const PAUSE: Span = Span::from_millis(2);

impl Health {
    /// A packet that was due before the one ahead of it had been handed over waited for that one.
    pub(super) fn note(&mut self, late: Span, waited: bool) {
        if !waited {
            self.lateness.note(late.as_nanos());
        }
        self.packets += 1;
        self.late += u64::from(late > Span::from_millis(1));
        self.latest = self.latest.max(late);
    }

    /// More packets were late than a result bears: the machine is too busy or too slow.
    pub fn is_late(&self) -> bool {
        self.late as f64 > LATE_SHARE * self.packets as f64
    }

    /// What a result should say of it.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.real_time {
            remarks.push(
                "the forwarder runs as an ordinary thread: real-time priority is not allowed here".to_owned(),
            );
        }
        let latest = 1e3 * self.latest.as_secs_f64();
        if self.is_late() {
            remarks.push(format!(
                "{} of {} packets were more than 1 ms late (the latest {latest:.1} ms): this machine is too busy or too slow",
                self.late, self.packets
            ));
        } else if self.latest > PAUSE {
            remarks.push(format!(
                "this machine paused: a packet came {latest:.1} ms late; round-trip times below some {:.0} ms show it",
                20.0 * latest
            ));
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a thousand packets some are late. More than 2 ms is a pause of the machine, unless so many are late that it is too slow.
    #[test]
    fn what_the_machine_did_not_manage_is_remarked() {
        for (late, micros, remark) in [
            (0, 900, None),
            (1, 1900, None),
            (
                1,
                2100,
                Some(
                    "this machine paused: a packet came 2.1 ms late; round-trip times below some 42 ms show it",
                ),
            ),
            (
                10,
                7000,
                Some(
                    "this machine paused: a packet came 7.0 ms late; round-trip times below some 140 ms show it",
                ),
            ),
            (
                11,
                7000,
                Some(
                    "11 of 1000 packets were more than 1 ms late (the latest 7.0 ms): this machine is too busy or too slow",
                ),
            ),
        ] {
            let mut health = Health { real_time: true, ..Health::default() };
            (0..1000 - late).for_each(|_| health.note(Span::from_micros(3), false));
            (0..late).for_each(|_| health.note(Span::from_micros(micros), true));
            assert_eq!(
                health.remarks(),
                remark.map(str::to_owned).into_iter().collect::<Vec<_>>(),
                "{late}, {micros}"
            );
        }
        let remarks = Health::default().remarks();
        assert!(remarks.len() == 1 && remarks[0].contains("ordinary thread"), "{remarks:?}");
    }
}

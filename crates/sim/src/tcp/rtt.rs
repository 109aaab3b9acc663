//! Round-trip time and retransmission timeout (RFC 6298).

use bandmaster_core::scenario::{RtoFloor, TcpSettings};
use bandmaster_core::time::Span;

/// A span that may be absent, in eight bytes: the longest one stands for none.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionalSpan(Span);

impl OptionalSpan {
    pub(super) fn get(self) -> Option<Span> {
        (self.0 != Span::MAX).then_some(self.0)
    }

    /// Takes a sample that is less.
    pub(super) fn lower(&mut self, sample: Option<Span>) {
        self.0 = self.0.min(sample.unwrap_or(Span::MAX));
    }
}

impl Default for OptionalSpan {
    fn default() -> Self {
        Self(Span::MAX)
    }
}

impl From<Span> for OptionalSpan {
    fn from(span: Span) -> Self {
        Self(span)
    }
}

/// Smoothed round-trip time and its variation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RttEstimator {
    srtt: OptionalSpan,
    variation: Span,
}

/// What schemes ask of round-trip times besides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RttRange {
    min: OptionalSpan,
    last: OptionalSpan,
}

impl RttRange {
    pub(crate) fn add(&mut self, sample: Span) {
        self.min = self.min.get().map_or(sample, |min| min.min(sample)).into();
        self.last = sample.into();
    }

    pub(crate) fn min(&self) -> Option<Span> {
        self.min.get()
    }

    pub(crate) fn last(&self) -> Option<Span> {
        self.last.get()
    }
}

impl RttEstimator {
    /// RFC 6298 (2.2), (2.3), with alpha 1/8 and beta 1/4.
    pub(crate) fn add(&mut self, sample: Span) {
        let r = sample.as_nanos();
        match self.srtt.get() {
            None => {
                self.srtt = sample.into();
                self.variation = Span::from_nanos(r / 2);
            }
            Some(srtt) => {
                let s = srtt.as_nanos();
                self.variation = Span::from_nanos((3 * self.variation.as_nanos() + s.abs_diff(r)) / 4);
                self.srtt = Span::from_nanos((7 * s + r) / 8).into();
            }
        }
    }

    pub(crate) fn srtt(&self) -> Option<Span> {
        self.srtt.get()
    }

    /// Timeout before backing off.
    pub(crate) fn rto(&self, settings: &TcpSettings) -> Span {
        let Some(srtt) = self.srtt.get() else { return settings.initial_rto };
        let variation = self.variation * 4;
        let rto = match settings.rto_floor {
            RtoFloor::Rto => (srtt + variation).max(settings.min_rto),
            RtoFloor::Variance => srtt + variation.max(settings.min_rto),
        };
        rto.min(settings.max_rto)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6298 by hand: first sample 100 ms: SRTT 100, RTTVAR 50. Second 140: RTTVAR 3/4 50 + 1/4 40 = 47.5,
    /// SRTT 7/8 100 + 1/8 140 = 105; RTO 105 + 190 = 295.
    #[test]
    fn follows_rfc_6298() {
        let settings =
            TcpSettings { rto_floor: RtoFloor::Rto, min_rto: Span::from_millis(1), ..TcpSettings::default() };
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.rto(&settings), Span::from_secs(1));
        rtt.add(Span::from_millis(100));
        assert_eq!(rtt.rto(&settings), Span::from_millis(300));
        rtt.add(Span::from_millis(140));
        assert_eq!(rtt.srtt(), Some(Span::from_millis(105)));
        assert_eq!(rtt.rto(&settings), Span::from_millis(295));
    }

    #[test]
    fn floors_differ_as_stated() {
        let linux = TcpSettings::default();
        let rfc = TcpSettings { rto_floor: RtoFloor::Rto, min_rto: Span::from_secs(1), ..linux.clone() };
        let mut rtt = RttEstimator::default();
        for _ in 0..100 {
            rtt.add(Span::from_millis(50));
        }
        assert_eq!(rtt.rto(&linux), Span::from_millis(250));
        assert_eq!(rtt.rto(&rfc), Span::from_secs(1));
    }
}

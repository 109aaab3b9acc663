//! Programs that set the windows of TCP flows in passing.

use crate::id::FlowId;
use crate::time::Time;

/// What such a program sees of a TCP segment. Offsets count from the first payload byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Flow.
    pub flow: FlowId,
    /// SYN flag.
    pub syn: bool,
    /// FIN flag.
    pub fin: bool,
    /// RST flag.
    pub rst: bool,
    /// With data: offset after its last byte. On the way back: the offset acknowledged.
    pub offset: u64,
    /// Window that it states, in bytes.
    pub window: u64,
    /// Payload bytes of a full segment of its flow, as both ends stated in the handshake.
    pub mss: u64,
    /// Bytes that a full segment takes on the link.
    pub frame: u64,
    /// Bytes that a step of its receiver's window field stands for after the handshake (RFC 7323, section 2).
    pub scale: u64,
    /// Paths over which its window may be used: those of a connection of Multipath TCP with one window for all its subflows
    /// (RFC 8684, section 3.3.1), else 1.
    pub paths: u64,
}

impl Segment {
    /// A window as a field can state it. Steps of up to a segment round up: what that adds is no segment more, and a whole
    /// number of segments stays whole. Larger steps round down.
    pub fn stated(window: u64, mss: u64, scale: u64) -> u64 {
        if scale <= mss { window.next_multiple_of(scale.max(1)) } else { window / scale * scale }
    }
}

/// An offset in a stream of bytes, of which its packets tell the lower 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offset(u64);

impl Offset {
    /// Starts at the first reported offset.
    pub const fn new(told: u32) -> Self {
        Self(told as u64)
    }

    /// The offset after this report: no less than before, and less than 2 GiB more.
    pub fn follow(&mut self, told: u32) -> u64 {
        let step = told.wrapping_sub(self.0 as u32);
        if step <= i32::MAX as u32 {
            self.0 += u64::from(step);
        }
        self.0
    }
}

/// What becomes of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckVerdict {
    /// It goes on as it is.
    Pass,
    /// It goes on with this window in bytes.
    Window(u64),
    /// It waits until [`WindowProgram::release`] names its flow.
    Hold,
}

/// A program at a port that sees the data on its way out and the acknowledgements that come back over the same link.
pub trait WindowProgram: Send {
    /// A segment from the sender is about to leave by the port, where it and others, `held` bytes on the link, will wait.
    /// What it answers bounds the segment's window field.
    fn on_data(&mut self, now: Time, segment: &Segment, held: u64) -> Option<u64>;

    /// A segment from the receiver has come while `held` bytes wait at the port.
    fn on_ack(&mut self, now: Time, segment: &Segment, held: u64) -> AckVerdict;

    /// A flow that is to learn a window now: by its acknowledgement that waits, or by a copy of its last one without what that
    /// reports of losses and marks.
    fn release(&mut self) -> Option<(FlowId, u64)>;

    /// When [`WindowProgram::on_timer`] is to be called.
    fn timer(&self) -> Option<Time>;

    /// The time asked for has come; `held` bytes wait at the port.
    fn on_timer(&mut self, now: Time, held: u64);

    /// True when hosts take part: the receiver returns the window field, and the sender keeps to it.
    fn is_echoed(&self) -> bool {
        false
    }

    /// True when such a sender's timeout divides its slow-start threshold by the subflows, as QCBF's Algorithm 1 does.
    fn divides_at_timeout(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Over several wraps, with reports that come late.
        #[test]
        fn offsets_go_on_beyond_four_gibibytes(
            begin: u32,
            steps in prop::collection::vec((0u64..1 << 31, 0u64..1 << 31), 1..40),
        ) {
            let mut at = u64::from(begin);
            let mut offset = Offset::new(begin);
            for (step, late) in steps {
                at += step;
                prop_assert_eq!(offset.follow(at as u32), at);
                prop_assert_eq!(offset.follow(at.saturating_sub(late) as u32), at);
            }
        }
    }
}

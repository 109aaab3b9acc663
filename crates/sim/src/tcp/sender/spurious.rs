//! Losses that were none: what duplicates that the receiver reports (RFC 2883), and acknowledgements of what was sent before a timeout
//! (RFC 5682), take back.

use super::{Sender, State};
use crate::net::Net;
use crate::packet::Packet;
use crate::tcp::Profile;
use crate::tcp::cc::Window;

/// What connections keep that take spurious reductions back.
#[derive(Default)]
pub(super) struct Spurious {
    undo: Option<Undo>,
    forward: Forward,
}

/// The state before losses were believed, while that may be taken back.
#[derive(Clone, Copy)]
struct Undo {
    window: Window,
    /// First offset not acknowledged then.
    una: u64,
    /// Segments sent again since that no duplicate has answered.
    resent: u32,
}

/// Where the SACK-enhanced F-RTO of RFC 5682 (section 3.1) is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Forward {
    #[default]
    Off,
    /// The first segment was sent again: its acknowledgement lets new data go.
    Begun,
    /// The next acknowledgement tells.
    Awaits,
}

/// What F-RTO lets a sender do after an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Conventional,
    /// At most two new segments, none again.
    SendNew,
}

impl Sender {
    fn spurious(&mut self) -> Option<&mut Spurious> {
        self.steering.as_mut()?.spurious.as_deref_mut()
    }

    /// Losses are believed from now on.
    pub(super) fn remember_window(&mut self) {
        let (window, una) = (self.window, self.board.una);
        if let Some(spurious) = self.spurious() {
            *spurious = Spurious { undo: Some(Undo { window, una, resent: 0 }), forward: Forward::Off };
        }
    }

    pub(super) fn note_resent(&mut self) {
        if let Some(Spurious { undo: Some(undo), .. }) = self.spurious() {
            undo.resent += 1;
        }
    }

    /// RFC 2883 section 4: the first block reports a duplicate when it lies below the acknowledgement, or within the second block.
    /// Returns its range.
    pub(super) fn reported_duplicate(packet: &Packet) -> Option<(u64, u64)> {
        let (offset, len) = packet.sack[0];
        let below = (offset as i32) < 0;
        let (outer, outer_len) = packet.sack[1];
        let end = |offset: u32, len: u32| u64::from(offset) + u64::from(len);
        let within = packet.sack_count > 1 && offset >= outer && end(offset, len) <= end(outer, outer_len);
        let start = packet.ack.wrapping_add_signed(i64::from(offset as i32));
        (packet.sack_count > 0 && (below || within)).then_some((start, start + u64::from(len)))
    }

    /// The receiver reports a duplicate. RFC 3708: once every segment that was sent again has come twice, nothing had been lost.
    pub(super) fn take_duplicate(&mut self, end: u64) {
        let next = self.next;
        let una = self.board.una;
        if let Some(rack) = self.rack() {
            rack.note_duplicate(una, next);
        }
        let Some(Spurious { undo, .. }) = self.spurious() else { return };
        let Some(of_episode) = undo.as_mut().filter(|undo| undo.resent > 0 && end > undo.una) else { return };
        of_episode.resent -= 1;
        if of_episode.resent == 0 {
            self.restore();
        }
    }

    /// As Linux: window and threshold are again what they were, at least; segments that are marked lost are looked at again.
    fn restore(&mut self) {
        let Some(Spurious { undo, .. }) = self.spurious() else { return };
        let Some(Undo { window, .. }) = undo.take() else { return };
        // A control by rates takes its window back when the recovery ends.
        if !self.has_rates() {
            self.window.cwnd = self.window.cwnd.max(window.cwnd);
            self.window.ssthresh = self.window.ssthresh.max(window.ssthresh);
        }
        if matches!(self.state, State::Recovery | State::Loss) {
            self.state = State::Open;
            self.end_recovery();
        }
    }

    /// RFC 5682 section 3.1, step 1. Timeouts that end a fast recovery, and those of a segment whose predecessors made progress after a
    /// timeout, are taken for what they seem.
    pub(super) fn begin_forward(&mut self) {
        if let Some(spurious) = self.spurious() {
            spurious.forward = Forward::Begun;
        }
    }

    fn set_forward(&mut self, forward: Forward) {
        if let Some(spurious) = self.spurious() {
            spurious.forward = forward;
        }
    }

    /// Whether the next acknowledgement tells if a timeout was spurious: until then nothing is sent again.
    pub(super) fn awaits_forward(&mut self) -> bool {
        self.spurious().is_some_and(|spurious| spurious.forward == Forward::Awaits)
    }

    /// Steps 2 and 3, after an acknowledgement that covers more when it has `advanced`, and says something `new` then or by SACK.
    pub(super) fn step_forward(
        &mut self,
        packet: &Packet,
        advanced: bool,
        new: bool,
        profile: &Profile,
    ) -> Step {
        let point = self.recovery_point;
        let Some(spurious) = self.spurious() else { return Step::Conventional };
        match spurious.forward {
            Forward::Off => Step::Conventional,
            // 2a: all is acknowledged.
            Forward::Begun if packet.ack >= point => {
                spurious.forward = Forward::Off;
                Step::Conventional
            }
            // 2b.
            Forward::Begun if advanced => {
                spurious.forward = Forward::Awaits;
                Step::SendNew
            }
            Forward::Begun => Step::Conventional,
            Forward::Awaits => {
                spurious.forward = Forward::Off;
                let blocks = &packet.sack[..usize::from(packet.sack_count)];
                let end = |&(offset, len): &(u32, u32)| {
                    packet.ack.wrapping_add_signed(i64::from(offset as i32)) + u64::from(len)
                };
                let is_beyond = packet.ack > point || blocks.iter().any(|block| end(block) > point);
                if new && !is_beyond {
                    // 3b: what was sent before the timeout has arrived.
                    self.board.unmark_lost();
                    self.restore();
                } else if !self.has_rates() {
                    // 3a.
                    self.window.cwnd = self.window.cwnd.min(3 * profile.mss);
                }
                Step::Conventional
            }
        }
    }

    /// Step 2b: up to two new segments; if there are none, the sender recovers as ever.
    pub(super) fn send_forward(&mut self, profile: &Profile, net: &mut Net) {
        let mut sent = 0;
        while sent < 2
            && (u64::from(self.in_flight(&profile.settings)) + 1) * profile.mss <= self.send_window(profile)
            && let Some(len) = self.next_len(profile)
        {
            self.send_new(len, profile, net);
            sent += 1;
        }
        if sent == 0 {
            self.set_forward(Forward::Off);
            self.transmit(profile, net);
        }
    }
}

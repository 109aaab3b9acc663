//! TCP: RFC 9293 with RFC 5681, 6582, 6675, 2018, 7323, 6298, 3042, 6928, 3168, 6937.
//!
//! Data flows one way, from a [`sender::Sender`] to a [`receiver::Receiver`]; acknowledgements flow back. Segments are
//! full (MSS) except the last of a flow of limited size, so a segment's place in the retransmission queue follows from
//! its offset.

pub(crate) mod cc;
pub(crate) mod multipath;
pub(crate) mod receiver;
pub(crate) mod rtt;
mod scoreboard;
pub(crate) mod sender;

use bandmaster_core::scenario::{Multipath, ReceiveWindow, TcpSettings};
use bandmaster_core::time::Span;
use bandmaster_core::time::Time;
use bandmaster_core::tuning::{Tuning, Variant};
use bandmaster_core::units::tcp_headers;

/// Settings of both ends of a flow, with what follows from them.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) settings: TcpSettings,
    pub(crate) mss: u64,
    /// Bytes that headers and framing add to a data segment.
    pub(crate) overhead: u32,
    /// RFC 7323 shift count that the receiver offers.
    pub(crate) window_shift: u8,
    /// DSCP of both directions, where the IPv4 header has it.
    pub(crate) tos: u8,
    /// Some scheme looks at flows.
    pub(crate) has_schemes: bool,
    /// Subflows of multipath TCP: data segments take a whole MSS of sequence space, options in every segment.
    pub(crate) is_multipath: bool,
    /// Subflows that share a window in acknowledgements; 1: each has its own.
    pub(crate) paths: u64,
    /// A scheme's window field: the receiver returns it, and the sender keeps to it.
    pub(crate) echoes_window: bool,
    /// A timeout sets ssthresh as QCBF's Algorithm 1 does.
    pub(crate) divides_at_timeout: bool,
    /// RFC 8257: the receiver echoes every segment's mark.
    pub(crate) echoes_each: bool,
}

impl Profile {
    pub(crate) fn new(settings: TcpSettings, dscp: u8, has_schemes: bool, frame_overhead: u32) -> Self {
        let window_shift = if settings.window_scaling {
            (0..14).find(|shift| settings.receive_buffer.get() >> shift <= 65_535).unwrap_or(14)
        } else {
            0
        };
        Self {
            mss: settings.mss.get(),
            overhead: tcp_headers(settings.timestamps) + frame_overhead,
            window_shift,
            tos: dscp << 2,
            has_schemes,
            is_multipath: false,
            paths: 1,
            echoes_window: false,
            divides_at_timeout: false,
            echoes_each: settings.congestion_control == "dctcp",
            settings,
        }
    }

    /// This profile with what `tuning` changes in it.
    pub(crate) fn tuned(&self, tuning: &Tuning) -> Self {
        let mut tuned = self.clone();
        let settings = &mut tuned.settings;
        settings.initial_window = tuning.initial_window.unwrap_or(settings.initial_window);
        // Linux takes no less than two ticks from anybody.
        let least = settings.timer_tick.map_or(Span::ZERO, |tick| tick * 2);
        settings.min_rto = tuning.min_rto.map_or(settings.min_rto, |span| span.max(least));
        settings.initial_rto = tuning.initial_rto.unwrap_or(settings.initial_rto);
        settings.pacing = tuning.pacing.unwrap_or(settings.pacing);
        settings.idle_restart = tuning.idle_restart.unwrap_or(settings.idle_restart);
        settings.cwnd_clamp = tuning.window_cap.or(settings.cwnd_clamp);
        if let Some(variant) = tuning.variant {
            variant.name().clone_into(&mut settings.congestion_control);
            settings.ecn |= variant.needs_ecn();
            settings.sack &= variant.uses_sack();
            tuned.echoes_each = variant == Variant::Dctcp;
        }
        tuned
    }

    /// The same for subflows of multipath TCP.
    pub(crate) fn with_multipath(self, multipath: &Multipath) -> Self {
        let is_shared = multipath.receive_window == ReceiveWindow::Shared;
        let paths = if is_shared { multipath.subflows.into() } else { 1 };
        Self { overhead: self.overhead + multipath::MAPPING_OPTION, is_multipath: true, paths, ..self }
    }

    /// Bytes on a link of a segment that opens a connection.
    pub(crate) fn syn_len(&self) -> u32 {
        self.overhead + self.settings.options_of_syn()
    }

    /// Bytes on a link of an acknowledgement with `sacks` blocks.
    pub(crate) fn ack_len(&self, sacks: u8) -> u32 {
        let shorter =
            if self.is_multipath { multipath::MAPPING_OPTION - multipath::DATA_ACK_OPTION } else { 0 };
        let blocks = match (sacks, &self.settings) {
            (0, _) => 0,
            // The two bytes that fill up the timestamps are the head of the blocks.
            (_, TcpSettings { timestamps: true, aligned_options: false, .. }) => 8 * u32::from(sacks),
            _ => 4 + 8 * u32::from(sacks),
        };
        self.overhead - shorter + blocks
    }

    /// Most SACK blocks that fit into the options with the timestamps, if they are on (RFC 2018 section 3).
    pub(crate) fn max_sacks(&self) -> usize {
        match (self.settings.timestamps, self.is_multipath) {
            (true, true) => 1,
            (false, true) => 3,
            (true, false) => 3,
            (false, false) => 4,
        }
    }

    /// Largest window that the receiver can state.
    pub(crate) fn max_window(&self) -> u64 {
        self.settings.receive_buffer.get().min(65_535 << self.window_shift)
    }
}

/// Clock of the timestamps option: microseconds, never 0.
pub(crate) fn timestamp(now: Time) -> u32 {
    ((now.as_nanos() / 1000) as u32).wrapping_add(1).max(1)
}

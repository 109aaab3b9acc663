//! The switches of the TCP model.

use super::choices::{
    CubicRules, FlightSize, HyStartRules, LossDetection, MarkReduction, Recovery, RtoFloor, RttSamples,
};
use crate::time::Span;
use crate::units::{Bytes, Rate, tcp_headers};

/// Every switch of the TCP model. Defaults are CUBIC, SACK and timestamps by the RFCs.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct TcpSettings {
    /// Name in the registry of congestion controls, or of one that the caller brings.
    pub congestion_control: String,
    /// Of one that the caller brings: the name under which the simulator has it.
    #[serde(skip)]
    pub brought_control: Option<&'static str>,
    /// Payload bytes of a full segment (excluding options).
    pub mss: Bytes,
    /// RFC 6928: initial congestion window in segments.
    pub initial_window: u32,
    /// RFC 2018 and 6675: selective acknowledgements.
    pub sack: bool,
    /// RFC 7323: timestamps, 12 bytes in every segment.
    pub timestamps: bool,
    /// RFC 7323 appendix A: each option begins at a multiple of four bytes; false: only their sum does (ns-3).
    pub aligned_options: bool,
    /// RFC 7323: window scaling.
    pub window_scaling: bool,
    /// RFC 1122: segments per acknowledgement; 1 acknowledges each.
    pub delayed_ack: u32,
    /// Longest delay of an acknowledgement.
    pub delayed_ack_timeout: Span,
    /// Segments at the beginning of a connection that are acknowledged at once.
    pub quick_acks: u32,
    /// RFC 3042: limited transmit.
    pub limited_transmit: bool,
    /// How the window falls in fast recovery.
    pub recovery: Recovery,
    /// How losses are found.
    pub loss_detection: LossDetection,
    /// RFC 8985 section 7: tail-loss probes of the simulator.
    pub tail_loss_probe: bool,
    /// RFC 2883: the receiver reports duplicates. They widen RACK's reordering window (RFC 8985 section 6.2), and undo a reduction (RFC 3708).
    pub dsack: bool,
    /// RFC 5682: spurious timeouts are found by what arrives after them, and undone.
    pub f_rto: bool,
    /// RFC 8985's tail-loss probes, in the lab only; before Linux 6.17 also its loss detection.
    pub rack_tlp: bool,
    /// How the window falls after an ECN echo.
    pub mark_reduction: MarkReduction,
    /// What NewReno halves on loss.
    pub flight_size: FlightSize,
    /// A partial acknowledgement of a fast recovery sends a segment whatever the window, unless the next was sent again (ns-3).
    pub partial_ack_sends: bool,
    /// RFC 6582 section 4: of a fast recovery's partial acknowledgements only the first restarts the timer.
    pub impatient_timer: bool,
    /// RFC 3465: grow by bytes acknowledged (Linux) instead of once per acknowledgement (RFC 5681, ns-3).
    pub byte_counting: bool,
    /// RFC 7661 and Linux: no growth of the window while it is not the limit.
    pub cwnd_validation: bool,
    /// Which acknowledgements give a round-trip sample, without timestamps. None that covers a retransmission does (Karn).
    pub rtt_samples: RttSamples,
    /// RFC 6298: retransmission timeout before the first measurement, and of the SYN.
    pub initial_rto: Span,
    /// Least retransmission timeout.
    pub min_rto: Span,
    /// What `min_rto` bounds.
    pub rto_floor: RtoFloor,
    /// The retransmission timer ends at multiples of it only; none: it is exact.
    pub timer_tick: Option<Span>,
    /// Largest retransmission timeout.
    pub max_rto: Span,
    /// Receive buffer, the largest window that is offered.
    pub receive_buffer: Bytes,
    /// Rate at which the receiving application reads; none: at once.
    pub read_rate: Option<Rate>,
    /// RFC 3168: explicit congestion notification.
    pub ecn: bool,
    /// Pace segments over the round-trip time.
    pub pacing: bool,
    /// Pacing rate in slow start, as a multiple of cwnd / srtt.
    pub pacing_gain_slow_start: f64,
    /// Pacing rate in congestion avoidance, as a multiple of cwnd / srtt.
    pub pacing_gain: f64,
    /// Most segments that leave together at the pace of a congestion control; none: as many as it asks for.
    pub largest_burst: Option<u32>,
    /// RFC 5681 section 4.1: restart from the initial window after an idle retransmission timeout.
    pub idle_restart: bool,
    /// Upper bound of the congestion window in segments; none: unbounded.
    pub cwnd_clamp: Option<u32>,
    /// Growing delay ends slow start (CUBIC; NewReno with RFC 9406).
    pub hystart: bool,
    /// How it does.
    pub hystart_rules: HyStartRules,
    /// How the window grows (CUBIC).
    pub cubic_rules: CubicRules,
    /// RFC 9438 section 4.7: a loss below the window of the one before lowers the window that is aimed at (CUBIC).
    pub fast_convergence: bool,
    /// Acknowledge at once what leaves less than a segment of the window that was offered.
    pub ack_at_window_end: bool,
}

impl TcpSettings {
    /// Congestion window of a new connection, in segments: the bound holds from the first one on, as in Linux.
    pub fn first_window(&self) -> u32 {
        self.cwnd_clamp.map_or(self.initial_window, |clamp| self.initial_window.min(clamp))
    }

    /// Payload share of a full frame on links that add `frame_overhead` to an IP packet.
    pub fn efficiency(&self, frame_overhead: Bytes) -> f64 {
        let (mss, headers) = (self.mss.get(), u64::from(tcp_headers(self.timestamps)));
        mss as f64 / (mss + headers + frame_overhead.get()) as f64
    }

    /// Bytes of the options of a segment that opens a connection, beyond those of data. They are, in Linux, MSS, SACK-permitted,
    /// timestamps and window scale, each aligned; in ns-3 all but the first.
    pub fn options_of_syn(&self) -> u32 {
        let Self { timestamps, sack, window_scaling, aligned_options, .. } = *self;
        let of = |on: bool, bytes: u32| if on { bytes } else { 0 };
        if aligned_options {
            4 + of(sack && !timestamps, 4) + of(window_scaling, 4)
        } else {
            let all = of(timestamps, 10) + of(sack, 2) + of(window_scaling, 3);
            all.next_multiple_of(4) - of(timestamps, 12)
        }
    }
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            congestion_control: "cubic".to_owned(),
            brought_control: None,
            mss: Bytes::new(1448),
            initial_window: 10,
            sack: true,
            timestamps: true,
            aligned_options: true,
            window_scaling: true,
            delayed_ack: 2,
            delayed_ack_timeout: Span::from_millis(40),
            quick_acks: 0,
            limited_transmit: true,
            recovery: Recovery::Prr,
            loss_detection: LossDetection::Rfc6675,
            tail_loss_probe: false,
            dsack: false,
            f_rto: false,
            rack_tlp: true,
            mark_reduction: MarkReduction::AtOnce,
            flight_size: FlightSize::Outstanding,
            partial_ack_sends: false,
            impatient_timer: false,
            byte_counting: true,
            cwnd_validation: true,
            rtt_samples: RttSamples::EachRoundTrip,
            initial_rto: Span::from_secs(1),
            min_rto: Span::from_millis(200),
            rto_floor: RtoFloor::Variance,
            timer_tick: None,
            max_rto: Span::from_secs(120),
            receive_buffer: Bytes::new(6 << 20),
            read_rate: None,
            ecn: false,
            pacing: false,
            pacing_gain_slow_start: 2.0,
            pacing_gain: 1.2,
            largest_burst: None,
            idle_restart: false,
            cwnd_clamp: None,
            hystart: true,
            hystart_rules: HyStartRules::Linux,
            cubic_rules: CubicRules::Rfc9438,
            fast_convergence: true,
            ack_at_window_end: true,
        }
    }
}

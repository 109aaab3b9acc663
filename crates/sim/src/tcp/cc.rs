//! Congestion controls: one file each, one line in the registry.

mod balia;
mod bbr;
mod bic;
mod cubic;
mod dctcp;
pub(crate) mod foreign;
mod hystart;
mod lia;
mod newreno;
mod olia;
mod reno;
mod tahoe;

use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::{HyStartRules, TcpSettings};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::Rate;

use super::multipath::PathState;

/// The two variables that a congestion control owns, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Window {
    /// Congestion window.
    pub(crate) cwnd: u64,
    /// Slow start threshold.
    pub(crate) ssthresh: u64,
}

/// What an acknowledgement of new data tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckInfo {
    pub(crate) now: Time,
    /// Payload bytes newly acknowledged.
    pub(crate) acked: u64,
    pub(crate) mss: u64,
    pub(crate) srtt: Option<Span>,
    /// Round-trip time that this acknowledgement measured.
    pub(crate) sample: Option<Span>,
    /// Next offset to be sent, and offset acknowledged: rounds are counted with them.
    pub(crate) next: u64,
    pub(crate) una: u64,
}

/// Whether bytes that an acknowledgement covers had been marked, with ECN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo {
    /// Payload bytes newly acknowledged.
    pub(crate) acked: u64,
    /// The receiver echoes congestion.
    pub(crate) marked: bool,
    /// Next offset to be sent, and offset acknowledged.
    pub(crate) next: u64,
    pub(crate) una: u64,
}

/// What is being repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repair {
    /// Nothing.
    None,
    /// A loss, by fast recovery.
    Recovery,
    /// What was outstanding at a timeout.
    Loss,
}

/// What an acknowledgement tells a control that steers by delivery rates. Counts are of segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) now: Time,
    pub(crate) mss: u64,
    /// Newly delivered, by a cumulative or a selective acknowledgement, and newly found lost.
    pub(crate) newly_delivered: u32,
    pub(crate) newly_lost: u32,
    /// Delivered and lost since the start of the connection.
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    /// In flight before this acknowledgement, and now.
    pub(crate) prior_in_flight: u32,
    pub(crate) in_flight: u32,
    pub(crate) repair: Repair,
    /// Round-trip time of the segment delivered last, which no delayed acknowledgement lengthens.
    pub(crate) rtt: Option<Span>,
    pub(crate) srtt: Option<Span>,
    pub(crate) sample: Option<RateSample>,
    /// When the pace lets the next segment go, from now on.
    pub(crate) next_send: Time,
}

/// A sample of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation-00, section 2.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RateSample {
    /// Segments delivered in `interval`.
    pub(crate) delivered: u64,
    pub(crate) interval: Span,
    /// Delivered when the segment was sent that this acknowledgement tells of.
    pub(crate) prior_delivered: u64,
    /// The application, not the network, limited the sender.
    pub(crate) is_app_limited: bool,
}

/// What follows the fast retransmit that the third duplicate acknowledgement or SACK brings about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FastRecovery {
    /// None: the window falls to a segment, and what is outstanding is sent again in slow start.
    None,
    /// Until the first acknowledgement of new data; later duplicates start another one in the same window.
    UntilProgress,
    /// Until everything is acknowledged that was outstanding at its start.
    UntilRepaired,
}

/// A congestion control.
pub(crate) trait CongestionControl: Send {
    /// Grows the window; called outside fast recovery when the window is the limit (or always, without validation).
    fn on_ack(&mut self, window: &mut Window, ack: &AckInfo);

    /// The new ssthresh on loss or ECN echo, with `in_flight` bytes outstanding.
    fn ssthresh_after_loss(&mut self, window: &Window, in_flight: u64, mss: u64) -> u64;

    /// [`Self::on_ack`] for subflow `own` of a multipath connection.
    fn on_subflow_ack(&mut self, window: &mut Window, ack: &AckInfo, _: &mut [PathState], _own: usize) {
        self.on_ack(window, ack);
    }

    /// [`Self::ssthresh_after_loss`] for subflow `own` of a multipath connection.
    fn ssthresh_after_subflow_loss(
        &mut self,
        window: &Window,
        in_flight: u64,
        mss: u64,
        _paths: &[PathState],
        _own: usize,
    ) -> u64 {
        self.ssthresh_after_loss(window, in_flight, mss)
    }

    /// [`Self::ssthresh_after_loss`] on an ECN echo.
    fn ssthresh_after_mark(&mut self, window: &Window, in_flight: u64, mss: u64) -> u64 {
        self.ssthresh_after_loss(window, in_flight, mss)
    }

    /// Whether [`Self::ssthresh_after_mark`] is another answer than that to a loss, though the receiver echoes until CWR comes.
    fn tells_marks_from_losses(&self) -> bool {
        false
    }

    /// With ECN: called for every acknowledgement of new data, before any other reaction to it.
    fn on_echo(&mut self, _echo: &Echo) {}

    /// True when `in_flight` above is to be everything outstanding, reported by duplicates or not.
    fn halves_outstanding(&self) -> bool {
        false
    }

    /// What follows a fast retransmit.
    fn fast_recovery(&self) -> FastRecovery {
        FastRecovery::UntilRepaired
    }

    /// A retransmission timeout has set the window to one segment.
    fn on_timeout(&mut self) {}

    /// The control steers by delivery rates: [`Self::on_delivery`] sets the window, in recovery too, instead of [`Self::on_ack`]
    /// and proportional rate reduction, and [`Self::pacing_rate`] the pace. Marks do not concern it.
    fn is_rate_based(&self) -> bool {
        false
    }

    /// For a control by rates: the random numbers that it may draw.
    fn set_stream(&mut self, _stream: Stream) {}

    /// For a control by rates: the connection is open, and the SYN's round-trip time measured.
    fn on_open(&mut self, _window: &Window, _rtt: Option<Span>, _mss: u64, _now: Time) {}

    /// For a control by rates: called for every acknowledgement.
    fn on_delivery(&mut self, _window: &mut Window, _delivery: &Delivery) {}

    /// For a control by rates: sending goes on after the application had nothing to send and nothing was in flight.
    fn on_restart(&mut self, _window: &mut Window, _mss: u64, _now: Time) {}

    /// For a control by rates: the window is small on purpose, so that rate samples count as the application's.
    fn is_app_limiting(&self) -> bool {
        false
    }

    /// For a control by rates: payload per second. None: as fast as the window allows.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// For a control by rates: segments that leave together.
    fn send_quantum(&self) -> u32 {
        1
    }
}

/// An entry of the registry.
#[derive(Debug)]
pub struct CongestionControlDef {
    /// Name in scenario files.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// RFC or paper.
    pub source: &'static str,
    build: fn(&TcpSettings) -> Box<dyn CongestionControl>,
}

/// Every congestion control.
pub static REGISTRY: &[&CongestionControlDef] = &[
    &tahoe::DEF,
    &reno::DEF,
    &newreno::DEF,
    &bic::DEF,
    &cubic::DEF,
    &dctcp::DEF,
    &bbr::DEF,
    &lia::DEF,
    &olia::DEF,
    &balia::DEF,
];

/// Builds the control that `settings` name.
pub(crate) fn build(settings: &TcpSettings) -> Option<Box<dyn CongestionControl>> {
    let def = REGISTRY.iter().find(|def| def.name == settings.congestion_control);
    def.map(|def| (def.build)(settings)).or_else(|| foreign::build(settings))
}

/// A control that begins with HyStart++ where the settings ask for it.
fn with_hystart<C: CongestionControl + 'static>(
    settings: &TcpSettings,
    control: C,
) -> Box<dyn CongestionControl> {
    if settings.hystart && settings.hystart_rules == HyStartRules::Rfc9406 {
        Box::new(hystart::HyStartPlusPlus::new(control, settings.byte_counting, settings.pacing))
    } else {
        Box::new(control)
    }
}

/// What the controls before CUBIC have in common: a segment more per round-trip time, half after a loss.
struct Additive {
    byte_counting: bool,
    /// As 4.3BSD: half of everything outstanding, in whole segments, and what follows a fast retransmit. None: RFC 5681.
    bsd: Option<FastRecovery>,
}

impl Additive {
    fn new(settings: &TcpSettings, bsd: Option<FastRecovery>) -> Self {
        Self { byte_counting: settings.byte_counting, bsd }
    }
}

impl CongestionControl for Additive {
    fn on_ack(&mut self, window: &mut Window, ack: &AckInfo) {
        additive_increase(window, ack, self.byte_counting);
    }

    fn ssthresh_after_loss(&mut self, window: &Window, in_flight: u64, mss: u64) -> u64 {
        match self.bsd {
            None => half_of_flight(in_flight, mss),
            // The offered window stands for the flight.
            Some(_) => (window.cwnd.min(in_flight) / 2 / mss).max(2) * mss,
        }
    }

    fn halves_outstanding(&self) -> bool {
        self.bsd.is_some()
    }

    fn fast_recovery(&self) -> FastRecovery {
        self.bsd.unwrap_or(FastRecovery::UntilRepaired)
    }
}

/// What the coupled controls of multipath TCP have in common: slow start as ever, then growth that depends on all
/// subflows. Without subflows they are Reno.
struct Coupled {
    byte_counting: bool,
    increase: Increase,
    /// The part of its flight that a subflow, at the position given, keeps after a loss.
    left: fn(&[PathState], usize) -> f64,
    /// Bytes of growth not yet in the window.
    owed: f64,
}

/// Window growth in bytes. Arguments: all subflows, own index, cwnd, acknowledged bytes, MSS.
type Increase = fn(&[PathState], usize, u64, u64, u64) -> f64;

impl Coupled {
    fn boxed(
        settings: &TcpSettings,
        increase: Increase,
        left: fn(&[PathState], usize) -> f64,
    ) -> Box<dyn CongestionControl> {
        Box::new(Self { byte_counting: settings.byte_counting, increase, left, owed: 0.0 })
    }
}

impl CongestionControl for Coupled {
    fn on_ack(&mut self, window: &mut Window, ack: &AckInfo) {
        self.on_subflow_ack(window, ack, &mut [], 0);
    }

    fn ssthresh_after_loss(&mut self, window: &Window, in_flight: u64, mss: u64) -> u64 {
        self.ssthresh_after_subflow_loss(window, in_flight, mss, &[], 0)
    }

    fn on_subflow_ack(&mut self, window: &mut Window, ack: &AckInfo, paths: &mut [PathState], own: usize) {
        let Some(counted) = beyond_slow_start(window, ack, self.byte_counting) else { return };
        if let Some(path) = paths.get_mut(own) {
            path.cwnd = window.cwnd;
        }
        self.owed += (self.increase)(paths, own, window.cwnd, counted, ack.mss);
        let whole = self.owed as i64;
        self.owed -= whole as f64;
        window.cwnd = window.cwnd.saturating_add_signed(whole).max(ack.mss);
    }

    /// As RFC 5681 equation (4), whose flight counts what SACK has reported, and not what limited transmit adds.
    fn ssthresh_after_subflow_loss(
        &mut self,
        window: &Window,
        in_flight: u64,
        mss: u64,
        paths: &[PathState],
        own: usize,
    ) -> u64 {
        let left = in_flight.min(window.cwnd) as f64 * (self.left)(paths, own);
        (left as u64).max(2 * mss)
    }

    fn halves_outstanding(&self) -> bool {
        true
    }
}

/// Slow start (RFC 5681 section 3.1; RFC 3465 without its limit L, as in Linux): returns the bytes left over beyond ssthresh.
fn slow_start(window: &mut Window, acked: u64, mss: u64, byte_counting: bool) -> u64 {
    if !byte_counting {
        window.cwnd += acked.min(mss);
        return 0;
    }
    let room = window.ssthresh.saturating_sub(window.cwnd);
    let used = acked.min(room);
    window.cwnd += used;
    acked - used
}

/// Slow start while it lasts; then the bytes by which congestion avoidance grows: those acknowledged (RFC 3465), or a
/// segment per acknowledgement.
fn beyond_slow_start(window: &mut Window, ack: &AckInfo, byte_counting: bool) -> Option<u64> {
    let mut acked = ack.acked;
    if window.cwnd < window.ssthresh {
        acked = slow_start(window, acked, ack.mss, byte_counting);
        if acked == 0 {
            return None;
        }
    }
    Some(if byte_counting { acked } else { ack.mss })
}

/// Slow start, then a segment per round-trip time (RFC 5681 section 3.1, equation (3)).
fn additive_increase(window: &mut Window, ack: &AckInfo, byte_counting: bool) {
    if let Some(counted) = beyond_slow_start(window, ack, byte_counting) {
        window.cwnd += (ack.mss * counted / window.cwnd).max(1);
    }
}

/// Half of the flight, at least two segments (RFC 5681 equation (4)).
fn half_of_flight(in_flight: u64, mss: u64) -> u64 {
    (in_flight / 2).max(2 * mss)
}

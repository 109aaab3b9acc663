//! Congestion controls that another program brings.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bandmaster_core::scenario::TcpSettings;
use bandmaster_core::time::{Span, Time};

use super::{AckInfo, CongestionControl, Window};

/// What an acknowledgement of new data tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acknowledgement {
    /// The simulated time.
    pub now: Time,
    /// Payload bytes newly acknowledged.
    pub acked: u64,
    /// Smoothed round-trip time (RFC 6298).
    pub srtt: Option<Span>,
    /// Round-trip time that this acknowledgement measured.
    pub rtt: Option<Span>,
}

/// The congestion control of a connection, of another program. `cwnd` and `ssthresh` are in bytes, and `u64::MAX` is no threshold.
pub trait ForeignControl: Send {
    /// The new window and threshold after an acknowledgement of new data. Called outside fast recovery, when the window is the
    /// limit. A window of less than a segment is one of a segment.
    fn on_ack(&mut self, cwnd: u64, ssthresh: u64, ack: &Acknowledgement) -> (u64, u64);

    /// The new threshold after a loss or a timeout, with `in_flight` bytes outstanding. Fast recovery is that of RFC 6675.
    fn on_loss(&mut self, cwnd: u64, ssthresh: u64, in_flight: u64) -> u64;

    /// The new threshold after an ECN echo.
    fn on_mark(&mut self, cwnd: u64, ssthresh: u64, in_flight: u64) -> u64;

    /// A retransmission timeout has set the window to one segment.
    fn on_timeout(&mut self);
}

type Build = Arc<dyn Fn(u64) -> Box<dyn ForeignControl> + Send + Sync>;

static BROUGHT: RwLock<BTreeMap<&'static str, Build>> = RwLock::new(BTreeMap::new());

/// Has connections whose settings have `id` as `brought_control` controlled by what `build` gives for a maximum segment size, until it is taken back.
pub fn bring_congestion_control(
    id: &'static str,
    build: impl Fn(u64) -> Box<dyn ForeignControl> + Send + Sync + 'static,
) {
    BROUGHT.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::new(build));
}

/// Takes back [`bring_congestion_control`].
pub fn take_congestion_control_back(id: &str) {
    BROUGHT.write().unwrap_or_else(PoisonError::into_inner).remove(id);
}

/// The control that `settings` name, of another program.
pub(super) fn build(settings: &TcpSettings) -> Option<Box<dyn CongestionControl>> {
    let brought = BROUGHT.read().unwrap_or_else(PoisonError::into_inner);
    let build = brought.get(settings.brought_control?).cloned()?;
    drop(brought);
    let mss = settings.mss.get();
    Some(Box::new(Foreign { control: build(mss), mss }))
}

struct Foreign {
    control: Box<dyn ForeignControl>,
    mss: u64,
}

impl CongestionControl for Foreign {
    fn on_ack(&mut self, window: &mut Window, ack: &AckInfo) {
        let told = Acknowledgement { now: ack.now, acked: ack.acked, srtt: ack.srtt, rtt: ack.sample };
        let (cwnd, ssthresh) = self.control.on_ack(window.cwnd, window.ssthresh, &told);
        *window = Window { cwnd: cwnd.max(self.mss), ssthresh };
    }

    fn ssthresh_after_loss(&mut self, window: &Window, in_flight: u64, mss: u64) -> u64 {
        self.control.on_loss(window.cwnd, window.ssthresh, in_flight).max(mss)
    }

    fn ssthresh_after_mark(&mut self, window: &Window, in_flight: u64, mss: u64) -> u64 {
        self.control.on_mark(window.cwnd, window.ssthresh, in_flight).max(mss)
    }

    fn tells_marks_from_losses(&self) -> bool {
        true
    }

    fn on_timeout(&mut self) {
        self.control.on_timeout();
    }
}

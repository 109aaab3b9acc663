//! Settings of connections, and which of them this kernel supports.

use bandmaster_core::time::Span;
use bandmaster_core::tuning::Tuning;
use nix::time::{ClockId, clock_getres};
use serde::{Deserialize, Serialize};

use super::NAME;
use crate::limits::kernel_name;
use crate::netns::parameter;

/// Bytes of `struct settings`.
pub(super) const SETTINGS: usize = NAME + 7 * 4;

/// A pace without a limit of its own: the kernel then spaces segments over the round-trip time.
const PACED: u32 = u32::MAX - 1;
/// Least and most that the kernel takes for the least retransmission timeout: two ticks, and `TCP_RTO_MIN`.
pub(crate) const FEWEST_TICKS: u64 = 2;
pub(crate) const HIGHEST_LEAST_TIMEOUT: Span = Span::from_millis(200);

/// What to set on a connection; none: leave what it has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Settings {
    /// Congestion control, by the kernel's name.
    pub control: Option<String>,
    /// Initial window, segments; for connections that begin only.
    pub initial_window: Option<u32>,
    /// Least retransmission timeout; two ticks at least, 200 ms at most.
    pub least_timeout: Option<Span>,
    /// Timeout of the SYN, and before the first measurement; for connections that begin only.
    pub first_timeout: Option<Span>,
    /// Most segments in the congestion window.
    pub window_cap: Option<u32>,
    /// Most payload that leaves in a second, bytes.
    pub pacing_rate: Option<u32>,
    /// Most that the receiver's window offers, bytes; of a connection that begins, when it is there.
    pub receive_window: Option<u32>,
    /// Most that the receiver offers with its SYN, segments; for connections that begin only.
    pub first_offer: Option<u32>,
}

/// What this kernel makes of a [`Tuning`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Translation {
    /// What is set.
    pub settings: Settings,
    /// What of it is not what was asked for, and what is not done at all, a line each.
    pub remarks: Vec<String>,
}

impl Translation {
    /// By the congestion controls and the timer of this machine.
    pub fn new(tuning: &Tuning) -> Self {
        let known = parameter("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
        Self::by(tuning, &known, tick())
    }

    fn by(tuning: &Tuning, known: &str, tick: Span) -> Self {
        let mut remarks = Vec::new();
        let control = tuning.variant.and_then(|variant| {
            let name = kernel_name(variant.name());
            let is_known = known.split_whitespace().any(|known| known == name);
            if !is_known {
                remarks.push(format!("variant {}: this kernel has {known}", variant.name()));
            }
            is_known.then(|| name.to_owned())
        });
        let least_timeout = tuning.min_rto.map(|asked| {
            let most = HIGHEST_LEAST_TIMEOUT;
            let set = asked.up_to(tick).max(tick * FEWEST_TICKS).min(most);
            if set != asked {
                remarks.push(format!(
                    "min-rto {asked}: {set}; this kernel takes {FEWEST_TICKS} ticks of {tick} to {most}"
                ));
            }
            set
        });
        let first_timeout = tuning.initial_rto.map(|asked| {
            let set = asked.up_to(tick).max(tick);
            if set != asked {
                remarks.push(format!("initial-rto {asked}: {set}; the kernel's timer has ticks of {tick}"));
            }
            set
        });
        if tuning.idle_restart.is_some() {
            remarks
                .push("idle-restart: Linux has it for the whole host; the agent leaves it alone".to_owned());
        }
        if tuning.pacing == Some(false) {
            remarks.push("pacing off: a pacing that programs or queue disciplines ask for stays".to_owned());
        }
        let settings = Settings {
            control,
            // The kernel would take a window above the cap from a program.
            initial_window: tuning
                .initial_window
                .map(|window| tuning.window_cap.map_or(window, |cap| window.min(cap))),
            least_timeout,
            first_timeout,
            window_cap: tuning.window_cap,
            pacing_rate: (tuning.pacing == Some(true)).then_some(PACED),
            receive_window: None,
            first_offer: None,
        };
        Self { settings, remarks }
    }
}

/// The granularity of the kernel's timers: 1 / `CONFIG_HZ`.
pub fn tick() -> Span {
    // The coarse clocks go by ticks.
    let resolution = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).map_or(0, |res| res.tv_nsec());
    Span::from_nanos(u64::try_from(resolution).unwrap_or(0).max(1))
}

impl Settings {
    /// `struct settings`: zero leaves what is.
    pub(super) fn bytes(&self) -> [u8; SETTINGS] {
        let micros = |span: Span| u32::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(u32::MAX);
        let ticks = |span: Span| {
            let tick = tick();
            u32::try_from(span.up_to(tick).as_nanos() / tick.as_nanos()).unwrap_or(u32::MAX)
        };
        let mut bytes = [0; SETTINGS];
        if let Some(name) = &self.control {
            // The last byte stays zero.
            for (to, from) in bytes[..NAME - 1].iter_mut().zip(name.bytes()) {
                *to = from;
            }
        }
        let numbers = [
            self.initial_window,
            self.least_timeout.map(micros),
            self.first_timeout.map(ticks),
            self.window_cap,
            self.pacing_rate,
            self.receive_window,
            self.first_offer,
        ];
        for (place, number) in bytes[NAME..].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.unwrap_or(0).to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::tuning::Variant;

    use super::*;

    #[test]
    fn what_the_kernel_cannot_do_is_said() {
        let tick = Span::from_millis(4);
        let by = |tuning: Tuning| Translation::by(&tuning, "reno cubic bbr", tick);
        let exact = by(Tuning {
            initial_window: Some(20),
            min_rto: Some(Span::from_millis(8)),
            initial_rto: Some(Span::from_millis(4)),
            variant: Some(Variant::NewReno),
            pacing: Some(true),
            window_cap: Some(8),
            idle_restart: None,
        });
        assert_eq!(exact.remarks, Vec::<String>::new());
        assert_eq!(exact.settings.control.as_deref(), Some("reno"));
        assert_eq!((exact.settings.initial_window, exact.settings.window_cap), (Some(8), Some(8)));
        let short = by(Tuning { min_rto: Some(Span::from_millis(2)), ..Tuning::default() });
        assert_eq!(short.settings.least_timeout, Some(Span::from_millis(8)));
        assert_eq!(short.remarks, ["min-rto 2ms: 8ms; this kernel takes 2 ticks of 4ms to 200ms"]);
        let long = by(Tuning { min_rto: Some(Span::from_secs(1)), ..Tuning::default() });
        assert_eq!(long.settings.least_timeout, Some(Span::from_millis(200)));
        let bic = by(Tuning { variant: Some(Variant::Bic), ..Tuning::default() });
        assert_eq!((bic.settings, bic.remarks.len()), (Settings::default(), 1));
        let first = by(Tuning { initial_rto: Some(Span::from_millis(2)), ..Tuning::default() });
        assert_eq!(first.settings.first_timeout, Some(tick));
    }
}

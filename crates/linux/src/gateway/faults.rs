//! Faults: the log reports each once when it begins and once when it ends; the status shows it meanwhile.

use std::fmt;

use bandmaster_core::time::{Span, Time};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::status::Status;

/// How long a fault that the gateway has mended is still shown: another of its kind in that time is the same one.
pub(super) const SHOWN: Span = Span::from_secs(5);

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Rules of the gateway's table were removed or changed.
    ClassifierGone,
    /// The shaper was removed, replaced or changed.
    ShaperGone,
    /// What is sent cannot be what the peer counts.
    Mismatch,
    /// Too much leaves by no class.
    Unclassified,
    /// The interface is gone, or another has replaced it.
    NoInterface,
    /// The interface is down, or nothing is at its other end.
    LinkDown,
    /// The interface belongs to a bridge, a bond or the like, by which packets leave instead.
    Enslaved,
    /// The interface merges received packets.
    MergesReceived,
    /// The address by which the peer knows this gateway has gone.
    AddressChanged,
    /// The peer has another secret, or one end has none.
    KeysDiffer,
    /// The peer takes questions for old ones.
    RefusedAsOld,
    /// The peer speaks another version.
    OtherVersion,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::ClassifierGone,
        Self::ShaperGone,
        Self::Mismatch,
        Self::Unclassified,
        Self::NoInterface,
        Self::LinkDown,
        Self::Enslaved,
        Self::MergesReceived,
        Self::AddressChanged,
        Self::KeysDiffer,
        Self::RefusedAsOld,
        Self::OtherVersion,
    ];

    /// As status, log and metrics call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClassifierGone => "classifier-gone",
            Self::ShaperGone => "shaper-gone",
            Self::Mismatch => "mismatch",
            Self::Unclassified => "unclassified",
            Self::NoInterface => "no-interface",
            Self::LinkDown => "link-down",
            Self::Enslaved => "enslaved",
            Self::MergesReceived => "merges-received",
            Self::AddressChanged => "address-changed",
            Self::KeysDiffer => "keys-differ",
            Self::RefusedAsOld => "refused-as-old",
            Self::OtherVersion => "other-version",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A kind of fault that was there at least once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FaultStatus {
    /// Its kind.
    pub kind: Fault,
    /// It is there now.
    pub active: bool,
    /// The likely cause, and the remedy.
    pub cause: String,
    /// Time since it began last, s.
    pub began: f64,
    /// How often it began.
    pub times: u64,
    #[serde(skip)]
    pub(super) since: Time,
    /// When the gateway mended it.
    #[serde(skip)]
    mended: Option<Time>,
}

impl Status {
    /// Whether a fault is there now.
    pub fn has_fault(&self, kind: Fault) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind && fault.active)
    }

    /// How often a fault has begun.
    pub fn fault_times(&self, kind: Fault) -> u64 {
        self.faults.iter().find(|fault| fault.kind == kind).map_or(0, |fault| fault.times)
    }

    /// A fault is there.
    pub(super) fn begin_fault(&mut self, now: Time, kind: Fault, cause: String) {
        let at = self.faults.iter().position(|fault| fault.kind == kind).unwrap_or_else(|| {
            let (since, mended) = (now, None);
            let new = FaultStatus {
                kind,
                active: false,
                cause: String::new(),
                began: 0.0,
                times: 0,
                since,
                mended,
            };
            let at = self.faults.partition_point(|fault| fault.kind < kind);
            self.faults.insert(at, new);
            at
        });
        let fault = &mut self.faults[at];
        fault.mended = None;
        if !fault.active {
            warn!(fault = kind.name(), "begins: {cause}");
            (fault.active, fault.since) = (true, now);
            fault.times += 1;
        }
        fault.cause = cause;
    }

    /// A fault is not there any more.
    pub(super) fn end_fault(&mut self, now: Time, kind: Fault) {
        if let Some(fault) = self.faults.iter_mut().find(|fault| fault.kind == kind && fault.active) {
            fault.active = false;
            let seconds = now.since(fault.since).as_secs_f64().round();
            info!(fault = kind.name(), seconds, "ends");
        }
    }

    /// The gateway has mended a fault, which ends unless it comes again.
    pub(super) fn mend_fault(&mut self, now: Time, kind: Fault) {
        if let Some(fault) = self.faults.iter_mut().find(|fault| fault.kind == kind) {
            fault.mended.get_or_insert(now);
        }
    }

    /// Whether a fault is there that the gateway has mended.
    pub(super) fn is_mended(&self, kind: Fault) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind && fault.active && fault.mended.is_some())
    }

    /// Ends what was mended and has not come again.
    pub(super) fn end_mended(&mut self, now: Time) {
        let over = |fault: &FaultStatus| fault.active && fault.mended.is_some_and(|at| at + SHOWN <= now);
        let over: Vec<Fault> = self.faults.iter().filter(|f| over(f)).map(|fault| fault.kind).collect();
        over.into_iter().for_each(|kind| self.end_fault(now, kind));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_comes_again_while_it_is_shown_is_one() {
        let mut status = Status::default();
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        for millis in [0, 2000, 4000] {
            status.begin_fault(at(millis), Fault::ShaperGone, "gone".to_owned());
            status.mend_fault(at(millis + 100), Fault::ShaperGone);
            status.mend_fault(at(millis + 900), Fault::ShaperGone);
            status.end_mended(at(millis + 1000));
            assert!(status.has_fault(Fault::ShaperGone));
        }
        status.end_mended(at(9099));
        assert!(status.has_fault(Fault::ShaperGone));
        status.end_mended(at(9100));
        assert!(!status.has_fault(Fault::ShaperGone));
        assert_eq!(status.fault_times(Fault::ShaperGone), 1);
        status.begin_fault(at(9200), Fault::Mismatch, "gone".to_owned());
        status.begin_fault(at(9300), Fault::ClassifierGone, "gone".to_owned());
        let kinds: Vec<Fault> = status.faults.iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds, Fault::ALL[..3], "in the order of kinds");
    }
}

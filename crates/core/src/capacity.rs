//! Links whose capacity changes with time: steps of the rate, and traces of delivery opportunities.

mod schedule;

use std::sync::Arc;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

pub use schedule::Schedule;

/// How the capacity of one direction of a link changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Capacity {
    /// The rate changes at stated times.
    Steps(Steps),
    /// A recorded schedule says when so many bytes may leave.
    Trace(Trace),
}

/// Rates one after the other. Before the first step the rate is that of the link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Steps {
    steps: Vec<Step>,
    period: Option<Span>,
}

/// A change of the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Step {
    /// Time since the start of the run; of steps that repeat, since the start of the period.
    pub at: Span,
    /// The rate from then on; zero for a pause.
    pub rate: Rate,
}

/// What is wrong with a list of steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepsMisfit {
    /// Position of the step; none: the list as a whole.
    pub step: Option<usize>,
    /// The key that is wrong: one of the step's, or `steps`.
    pub key: &'static str,
    /// The rest of "`key` ...".
    pub why: String,
}

impl Steps {
    /// Steps that repeat every `period`; without one they run once.
    ///
    /// # Errors
    /// When there are none, when one is not after the one before it or not within the period, or when nothing could be
    /// sent from some moment on.
    pub fn new(steps: Vec<Step>, period: Option<Span>) -> Result<Self, StepsMisfit> {
        let misfit = |step, key, why| Err(StepsMisfit { step, key, why });
        let Some(last) = steps.last() else {
            let why = "is empty; write steps such as { at = \"15s\", rate = \"1mbit\" }";
            return misfit(None, "steps", why.to_owned());
        };
        if let Some(i) = (1..steps.len()).find(|&i| steps[i].at <= steps[i - 1].at) {
            let why = format!("\"{}\" is not after the step before it, \"{}\"", steps[i].at, steps[i - 1].at);
            return misfit(Some(i), "at", why);
        }
        match period {
            None if last.rate == Rate::ZERO => {
                let why = "is 0 for ever; write a later step with a rate, or a `period`";
                misfit(Some(steps.len() - 1), "rate", why.to_owned())
            }
            Some(period) if last.at >= period => {
                let i = steps.partition_point(|step| step.at < period);
                let why = format!("\"{}\" is not before the end of the period, \"{period}\"", steps[i].at);
                misfit(Some(i), "at", why)
            }
            Some(_) if steps[0].at.is_zero() && steps.iter().all(|step| step.rate == Rate::ZERO) => {
                misfit(None, "steps", "is a pause for ever: no step has a rate above 0".to_owned())
            }
            _ => Ok(Self { steps, period }),
        }
    }

    /// The steps, at least one, each after the one before it.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The steps repeat after this time; none: they run once.
    pub fn period(&self) -> Option<Span> {
        self.period
    }
}

/// Delivery opportunities in the format of Mahimahi's `mm-link`: a line for each, with its time in whole milliseconds.
/// The trace restarts at the time of its last line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Trace {
    file: String,
    digest: String,
    #[serde(serialize_with = "count")]
    opportunities: Arc<[u32]>,
}

/// What is wrong with a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceError {
    /// Line from 1; none: the file as a whole.
    pub line: Option<usize>,
    /// What is wrong with it and what is allowed.
    pub why: String,
}

impl Trace {
    /// Bytes that may leave at each opportunity: an IP packet of 1500 bytes and the 4 bytes that the kernel's TUN device
    /// puts before it, as `mm-link` counts.
    pub const OPPORTUNITY: Bytes = Bytes::new(1_504);

    /// Reads a trace; `file` is its name.
    ///
    /// # Errors
    /// The first line that is not a time or comes before the one above it; a trace without lines, or without length.
    pub fn parse(file: &str, text: &str) -> Result<Self, TraceError> {
        let mut opportunities: Vec<u32> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |why: String| Err(TraceError { line: Some(number), why });
            let written = line.trim();
            if written.is_empty() {
                return wrong(format!("is empty; each line is {ALLOWED}"));
            }
            let Some(at) = written.parse().ok().filter(|_| !written.starts_with('+')) else {
                return wrong(format!("\"{}\" is not {ALLOWED}", shown(written)));
            };
            if let Some(before) = opportunities.last().filter(|before| at < **before) {
                return wrong(format!("{at} comes before the line above it, {before}; times never decrease"));
            }
            opportunities.push(at);
        }
        let whole = |why: &str| Err(TraceError { line: None, why: why.to_owned() });
        match opportunities.last() {
            None => whole(&format!("is empty; write a line for each opportunity, {ALLOWED}")),
            Some(0) => whole("ends at 0; the last line is the length of the trace and must be at least 1"),
            Some(_) => {
                let digest = crate::hex::hex(&Sha256::digest(text));
                Ok(Self { file: file.to_owned(), digest, opportunities: opportunities.into() })
            }
        }
    }

    /// Name of the file, as the scenario gives it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// SHA-256 of the file, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Times of the opportunities in milliseconds, at least one, never decreasing.
    pub fn opportunities(&self) -> &Arc<[u32]> {
        &self.opportunities
    }

    /// The trace restarts after this time.
    pub fn length(&self) -> Span {
        self.opportunities.last().map_or(Span::ZERO, |last| Span::from_millis(u64::from(*last)))
    }

    /// The mean rate, in bytes as the link counts them.
    pub fn mean_rate(&self) -> Rate {
        let bits = self.opportunities.len() as f64 * Self::OPPORTUNITY.get() as f64 * 8.0;
        Rate::from_bits_per_sec_f64(bits / self.length().as_secs_f64())
    }
}

/// Bits that a port of `rate` can send from `from` to `to`; with a `schedule`, what that offers.
pub fn bits_between(schedule: Option<&Schedule>, rate: Rate, from: Time, to: Time) -> f64 {
    match schedule {
        Some(schedule) => schedule.carries(from, to),
        None => rate.bits_per_sec() as f64 * to.since(from).as_secs_f64(),
    }
}

const ALLOWED: &str = "a time in whole milliseconds, from 0 to 4294967295";

/// The start of a text that may be anything.
fn shown(text: &str) -> String {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", text[..end].escape_debug()),
        None => text.escape_debug().to_string(),
    }
}

fn count<S: serde::Serializer>(opportunities: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(opportunities.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(list: &[(u64, u64)], period: Option<u64>) -> Result<Steps, StepsMisfit> {
        let step = |&(at, kbit): &(u64, u64)| Step {
            at: Span::from_millis(at),
            rate: Rate::from_bits_per_sec(kbit * 1000),
        };
        Steps::new(list.iter().map(step).collect(), period.map(Span::from_millis))
    }

    #[test]
    fn steps_ascend_within_the_period_and_leave_a_rate() {
        assert!(steps(&[(0, 5), (10, 0), (20, 5)], None).is_ok());
        assert!(steps(&[(5, 0)], Some(20)).is_ok(), "the link's own rate comes first");
        let position = |list, period| steps(list, period).map_err(|misfit| misfit.step);
        assert_eq!(position(&[], None), Err(None));
        assert_eq!(position(&[(10, 5), (10, 6)], None), Err(Some(1)));
        assert_eq!(position(&[(10, 5), (20, 0)], None), Err(Some(1)));
        assert_eq!(position(&[(10, 5), (20, 6), (30, 7)], Some(20)), Err(Some(1)));
        assert_eq!(position(&[(0, 0), (10, 0)], Some(20)), Err(None));
    }

    #[test]
    fn a_trace_is_a_time_on_each_line() {
        let trace = Trace::parse("t", "0\n1\r\n1\n4").expect("a trace");
        assert_eq!((&trace.opportunities()[..], trace.length()), (&[0, 1, 1, 4][..], Span::from_millis(4)));
        assert_eq!(trace.mean_rate(), Rate::from_bits_per_sec(4 * 1504 * 8 * 250));
        assert_eq!(serde_json::to_value(&trace).expect("serialises")["opportunities"], 4);
        assert_ne!(trace.digest(), Trace::parse("t", "0\n1\n2\n4").expect("a trace").digest());
        let wrong = |text: &str| {
            let error = Trace::parse("t", text).expect_err("a wrong trace");
            (error.line, error.why.split(';').next().unwrap_or_default().to_owned())
        };
        assert_eq!(wrong(""), (None, "is empty".to_owned()));
        assert_eq!(wrong("0\n0\n"), (None, "ends at 0".to_owned()));
        assert_eq!(wrong("3\n\n4\n"), (Some(2), "is empty".to_owned()));
        assert_eq!(wrong("3\n2\n"), (Some(2), "2 comes before the line above it, 3".to_owned()));
        for text in ["1.5", "-1", "+1", "1 2", "4294967296", "x"] {
            assert_eq!(wrong(text), (Some(1), format!("\"{text}\" is not {ALLOWED}")));
        }
    }
}

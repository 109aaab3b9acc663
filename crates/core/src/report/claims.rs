//! Whether what a study claims came out.

use serde::Serialize;

use super::difference::{Sample, half_width};
use super::metric;
use super::summary::{Estimate, Summary, SummaryRow, student_t_975};
use crate::scenario::{Against, Claim, ClaimAt, Relation, Study};

/// What became of a claim.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClaimResult {
    /// Id in the scenario file.
    pub id: String,
    /// The statement in words.
    pub text: String,
    /// True when the claim holds.
    pub ok: bool,
    /// Why `ok` is what it is.
    pub status: Status,
    /// What was computed, in words: `Throughput of new over that of old`.
    pub computed: String,
    /// Unit of the value and of the band; empty for indices, counts and ratios.
    pub unit: &'static str,
    /// The judged number, of means over trials; with several points, the one that decides. None when data are missing.
    pub value: Option<f64>,
    /// Its 95 % confidence interval; none when there is a single trial, or it has no end.
    pub interval: Option<[f64; 2]>,
    /// Trials that the value is of.
    pub trials: u32,
    /// How many trials would probably decide the claim, where it is undecided and this can be told.
    pub trials_to_decide: Option<u32>,
    /// Least value; none: no such edge.
    pub low: Option<f64>,
    /// Largest value; none: no such edge.
    pub high: Option<f64>,
    /// Judged metric.
    pub metric: String,
    /// Judged variant.
    pub variant: String,
    /// Point that `value` belongs to, or that lacks data: `base`, or `sweep = value`.
    pub at: String,
    /// What the paper reports.
    pub paper: String,
    /// Figure, table or section of the paper.
    pub source: String,
    /// Why the edges stand where they do.
    pub because: String,
    /// Why the claim is known not to be reproduced, when it is not.
    pub not_reproduced: Option<String>,
}

/// Outcome of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The whole interval of every judged number lies in the band.
    Holds,
    /// None of the interval of a judged number lies in the band.
    Fails,
    /// An interval crosses an edge, or there is a single trial and so no interval: more trials are needed.
    Undecided,
    /// The study itself says that the paper's result is not reproduced, and why; it is so.
    NotReproduced,
    /// The study says that the result is not reproduced, and it holds: the study is wrong.
    ReproducedAfterAll,
    /// No judged number is outside the band, but not all are there.
    Missing,
}

impl Status {
    /// The word for people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Holds => "ok",
            Self::Fails => "FAILS",
            Self::Undecided => "undecided",
            Self::NotReproduced => "not reproduced",
            Self::ReproducedAfterAll => "REPRODUCED",
            Self::Missing => "NO DATA",
        }
    }

    /// What it means, for people, where the word does not say it.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Undecided => "the 95 % interval crosses an edge of the band",
            Self::ReproducedAfterAll => "reproduced after all: the file says that it is not",
            Self::Holds | Self::Fails | Self::NotReproduced | Self::Missing => "",
        }
    }

    /// True when a run with such a claim has not shown what it set out to show. A quick run leaves claims undecided.
    pub const fn is_failure(self, quick: bool) -> bool {
        match self {
            Self::Fails | Self::ReproducedAfterAll | Self::Missing => true,
            Self::Undecided => !quick,
            Self::Holds | Self::NotReproduced => false,
        }
    }
}

/// A place where a claim looks.
#[derive(Clone, Copy)]
enum Place<'a> {
    Base,
    Point(&'a str, &'a str),
}

/// A judged number.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Judged {
    value: f64,
    interval: Option<[f64; 2]>,
    trials: u32,
}

/// Judges every claim of `study`, in file order.
pub fn evaluate(study: &Study, summary: &Summary) -> Vec<ClaimResult> {
    study.claims.iter().map(|claim| judge(claim, study, summary)).collect()
}

fn judge(claim: &Claim, study: &Study, summary: &Summary) -> ClaimResult {
    let mut worst: Option<((u8, f64), Judged, Place<'_>)> = None;
    let mut missing: Option<Place<'_>> = None;
    let mut within = true;
    for place in places(claim, study) {
        let Some(judged) = judged_at(claim, place, summary).filter(|judged| judged.value.is_finite()) else {
            missing = missing.or(Some(place));
            continue;
        };
        let margin = margin(claim, judged.value);
        within &= margin >= 0.0;
        // The gravest first, of equals the one with the least margin.
        let rank = match verdict(claim, judged) {
            Status::Fails => 0,
            Status::Undecided => 1,
            _ => 2,
        };
        if worst.is_none_or(|((gravest, least), ..)| (rank, margin) < (gravest, least)) {
            worst = Some(((rank, margin), judged, place));
        }
    }
    let (status, judged, at) = match (worst, missing) {
        (Some(((0, _), judged, place)), _) => (Status::Fails, Some(judged), Some(place)),
        (_, Some(place)) => (Status::Missing, None, Some(place)),
        (Some(((1, _), judged, place)), None) => (Status::Undecided, Some(judged), Some(place)),
        (Some((_, judged, place)), None) => (Status::Holds, Some(judged), Some(place)),
        (None, None) => (Status::Missing, None, None),
    };
    let status = match (claim.not_reproduced.is_some(), status) {
        (true, Status::Holds) => Status::ReproducedAfterAll,
        (true, Status::Fails) => Status::NotReproduced,
        (true, Status::Undecided) if !within => Status::NotReproduced,
        (_, status) => status,
    };
    let decide = |judged| trials_to_decide(claim, judged);
    ClaimResult {
        id: claim.id.clone(),
        text: claim.text.clone(),
        ok: status == Status::Holds,
        status,
        computed: computed(claim),
        unit: unit(claim),
        value: judged.map(|judged| judged.value),
        interval: judged.and_then(|judged| judged.interval),
        trials: judged.map_or(0, |judged| judged.trials),
        trials_to_decide: judged.filter(|_| status == Status::Undecided).and_then(decide),
        low: claim.low,
        high: claim.high,
        metric: claim.metric.clone(),
        variant: claim.variant.clone(),
        at: at.map_or_else(|| "no point".to_owned(), Place::describe),
        paper: claim.paper.clone(),
        source: claim.source.clone(),
        because: claim.because.clone(),
        not_reproduced: claim.not_reproduced.clone(),
    }
}

/// How far `value` is inside the nearer edge; negative outside.
fn margin(claim: &Claim, value: f64) -> f64 {
    let above = claim.low.map_or(f64::INFINITY, |low| value - low);
    let below = claim.high.map_or(f64::INFINITY, |high| high - value);
    above.min(below)
}

/// Of one number, without what the study says of its being reproduced.
fn verdict(claim: &Claim, judged: Judged) -> Status {
    let Some([from, to]) = judged.interval else { return Status::Undecided };
    let (low, high) = (claim.low.unwrap_or(f64::NEG_INFINITY), claim.high.unwrap_or(f64::INFINITY));
    if low <= from && to <= high {
        Status::Holds
    } else if to < low || high < from {
        Status::Fails
    } else {
        Status::Undecided
    }
}

/// Most trials that are worth saying.
const MOST_TRIALS: u32 = 1_000_000;

/// The fewest trials whose interval, with the spread of the present ones around the present value, has no edge in it.
fn trials_to_decide(claim: &Claim, judged: Judged) -> Option<u32> {
    let [from, to] = judged.interval?;
    let distance = margin(claim, judged.value).abs();
    let of = |n: u32| Some(student_t_975(f64::from(n - 1))? / f64::from(n).sqrt());
    // The half-width on the side of the nearest edge.
    let nearest_is_above = claim.high.is_some_and(|high| (high - judged.value).abs() <= distance);
    let half = if nearest_is_above { to - judged.value } else { judged.value - from };
    let spread = half / of(judged.trials)?;
    let decides = |n: u32| of(n).is_some_and(|of| spread * of <= distance);
    let (mut low, mut high) = (judged.trials, MOST_TRIALS);
    if !decides(high) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if decides(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// A claim's band: `0.95 to 1`, with one edge `at least 0.95`.
pub fn band(low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        (Some(low), Some(high)) if low == high => format!("exactly {low}"),
        (Some(low), Some(high)) => format!("{low} to {high}"),
        (Some(low), None) => format!("at least {low}"),
        (None, Some(high)) => format!("at most {high}"),
        (None, None) => "any".to_owned(),
    }
}

/// What a claim computes, in words.
pub fn computed(claim: &Claim) -> String {
    let long = metric::label(&claim.metric).long;
    let judged = format!("{long} of {}", claim.variant);
    let Some(against) = &claim.against else { return judged };
    let relation = match against.relation {
        Relation::Minus => "minus",
        Relation::Over => "over",
    };
    let what = against.metric.as_ref().map_or_else(|| "that".to_owned(), |name| metric::label(name).long);
    let of = against.variant.as_ref().unwrap_or(&claim.variant);
    let at =
        against.point.as_ref().map(|(sweep, value)| format!(" at {sweep} = {value}")).unwrap_or_default();
    format!("{judged} {relation} {what} of {of}{at}")
}

/// The unit of a claim's value; a ratio has none.
fn unit(claim: &Claim) -> &'static str {
    match &claim.against {
        Some(against) if against.relation == Relation::Over => "",
        _ => metric::label(&claim.metric).unit,
    }
}

/// The values that a claim's number can take at all.
pub(crate) fn range(name: &str, relation: Option<Relation>) -> [f64; 2] {
    let [least, most] = metric::range(name);
    match relation {
        None => [least, most],
        Some(Relation::Minus) => [least - most, most - least],
        Some(Relation::Over) => [if least < 0.0 { f64::NEG_INFINITY } else { 0.0 }, f64::INFINITY],
    }
}

fn places<'a>(claim: &'a Claim, study: &'a Study) -> Vec<Place<'a>> {
    let of = |sweep: &'a str, values: &'a [String]| {
        values.iter().map(|value| Place::Point(sweep, value)).collect()
    };
    match &claim.at {
        ClaimAt::Base => vec![Place::Base],
        ClaimAt::Point(sweep, value) => vec![Place::Point(sweep, value)],
        ClaimAt::Points(sweep, values) => of(sweep, values),
        ClaimAt::Every(sweep) => study
            .sweeps
            .iter()
            .find(|s| s.name == *sweep)
            .map_or_else(Vec::new, |found| of(sweep, &found.values)),
    }
}

fn judged_at(claim: &Claim, place: Place<'_>, summary: &Summary) -> Option<Judged> {
    let first = Trials::of(place.row(&claim.variant, summary)?, &claim.metric)?;
    let Some(against) = &claim.against else { return Some(Judged::of(first.estimate)) };
    let other = other_row(claim, against, place, summary)?;
    let second = Trials::of(other, against.metric.as_ref().unwrap_or(&claim.metric))?;
    Some(match against.relation {
        Relation::Minus => difference(&first, &second),
        Relation::Over => ratio(&first, &second),
    })
}

/// A metric of the trials of a case.
struct Trials<'a> {
    estimate: &'a Estimate,
    values: &'a [(u32, f64)],
}

impl<'a> Trials<'a> {
    fn of(row: &'a SummaryRow, metric: &str) -> Option<Self> {
        Some(Self { estimate: row.metric(metric)?, values: row.values(metric) })
    }

    /// The same trials on both sides, which draw alike, are pairs.
    fn is_paired_with(&self, other: &Self) -> bool {
        self.values.iter().map(|(trial, _)| trial).eq(other.values.iter().map(|(trial, _)| trial))
    }

    fn sample(&self) -> Sample {
        Sample { n: self.estimate.n, mean: self.estimate.mean, sd: self.estimate.sd }
    }
}

impl Judged {
    fn of(estimate: &Estimate) -> Self {
        let Estimate { mean, ci95, n, .. } = *estimate;
        Self { value: mean, interval: ci95.map(|half| [mean - half, mean + half]), trials: n }
    }
}

/// Student's interval of the differences of pairs, else Welch's.
fn difference(first: &Trials<'_>, second: &Trials<'_>) -> Judged {
    let value = first.estimate.mean - second.estimate.mean;
    let trials = first.estimate.n.min(second.estimate.n);
    let half = if first.is_paired_with(second) {
        let pairs = first.values.iter().zip(second.values);
        Estimate::new(pairs.map(|((_, a), (_, b))| a - b)).and_then(|estimate| estimate.ci95)
    } else {
        half_width(first.sample(), second.sample())
    };
    Judged { value, interval: half.map(|half| [value - half, value + half]), trials }
}

/// Fieller's interval (1954): every r for which zero is in the interval of the mean of `first - r second`. It has no end
/// when the interval of `second` has zero in it.
fn ratio(first: &Trials<'_>, second: &Trials<'_>) -> Judged {
    let (a, b) = (first.estimate.mean, second.estimate.mean);
    let trials = first.estimate.n.min(second.estimate.n);
    let interval = || {
        let variance = |side: &Trials<'_>| Some(side.estimate.sd?.powi(2) / f64::from(side.estimate.n));
        let (aa, bb) = (variance(first)?, variance(second)?);
        let ab = if first.is_paired_with(second) {
            let pairs = first.values.iter().zip(second.values);
            let sum: f64 = pairs.map(|((_, x), (_, y))| (x - a) * (y - b)).sum();
            let n = f64::from(trials);
            sum / (n - 1.0) / n
        } else {
            0.0
        };
        let t2 = student_t_975(f64::from(trials.checked_sub(1).filter(|n| *n > 0)?))?.powi(2);
        // r^2 (b^2 - t^2 bb) - 2 r (a b - t^2 ab) + a^2 - t^2 aa = 0
        let square = b * b - t2 * bb;
        if square <= 0.0 {
            return None;
        }
        let middle = (a * b - t2 * ab) / square;
        let half = (middle * middle - (a * a - t2 * aa) / square).max(0.0).sqrt();
        Some([middle - half, middle + half])
    };
    Judged { value: a / b, interval: interval(), trials }
}

fn other_row<'a>(
    claim: &Claim,
    against: &Against,
    place: Place<'_>,
    summary: &'a Summary,
) -> Option<&'a SummaryRow> {
    let variant = against.variant.as_ref().unwrap_or(&claim.variant);
    match (&against.point, place) {
        (Some((sweep, value)), _) => summary.point(variant, sweep, value),
        (None, Place::Base) => summary.base(variant),
        (None, Place::Point(sweep, _)) => {
            let swept = summary
                .rows
                .iter()
                .any(|r| r.variant == *variant && r.points.iter().any(|(s, _)| s == sweep));
            if swept { place.row(variant, summary) } else { summary.base(variant) }
        }
    }
}

impl Place<'_> {
    fn row<'a>(&self, variant: &str, summary: &'a Summary) -> Option<&'a SummaryRow> {
        match self {
            Self::Base => summary.base(variant),
            Self::Point(sweep, value) => summary.point(variant, sweep, value),
        }
    }

    fn describe(self) -> String {
        match self {
            Self::Base => "base".to_owned(),
            Self::Point(sweep, value) => format!("{sweep} = {value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::{case, record, study};
    use super::*;
    use crate::report::RunRecord;
    use crate::scenario::Sweep;

    fn claim(at: ClaimAt, low: f64, high: f64) -> Claim {
        Claim {
            id: "c".to_owned(),
            text: "text".to_owned(),
            metric: "jain".to_owned(),
            variant: "new".to_owned(),
            against: None,
            at,
            low: Some(low),
            high: Some(high),
            because: String::new(),
            paper: "0.9".to_owned(),
            source: "Fig. 6".to_owned(),
            not_reproduced: None,
        }
    }

    fn every() -> ClaimAt {
        ClaimAt::Every("n".to_owned())
    }

    /// `new` is swept over n = 4 (its base) and 8; `old` has its base only.
    fn small_study() -> (Study, Vec<RunRecord>) {
        let mut study = study(vec![
            case("new", &[("n", "4")], true),
            case("new", &[("n", "8")], false),
            case("old", &[], true),
        ]);
        study.sweeps.push(Sweep {
            name: "n".to_owned(),
            title: "N".to_owned(),
            key: "groups.clients.count".to_owned(),
            grid: Vec::new(),
            values: vec!["4".to_owned(), "8".to_owned()],
            variants: vec!["new".to_owned()],
        });
        let records = vec![
            record(0, 0, &[("jain", 0.919), ("drops", 0.0)]),
            record(0, 1, &[("jain", 0.921), ("drops", 0.0)]),
            record(1, 0, &[("jain", 0.80), ("drops", 0.0)]),
            record(1, 1, &[("jain", 0.80), ("drops", 0.0)]),
            record(2, 0, &[("jain", 0.4599), ("drops", 0.0)]),
            record(2, 1, &[("jain", 0.4601), ("drops", 0.0)]),
        ];
        (study, records)
    }

    fn judged(claim: Claim) -> ClaimResult {
        let (mut study, records) = small_study();
        study.claims.push(claim);
        let summary = Summary::new(&study, &records);
        evaluate(&study, &summary).remove(0)
    }

    /// 0.919 and 0.921: mean 0.92, half-width 12.706 * 0.001 = 0.0127.
    #[test]
    fn the_interval_of_the_mean_is_judged() {
        let result = judged(claim(ClaimAt::Base, 0.0, 0.95));
        let [from, to] = result.interval.unwrap();
        assert!((result.value.unwrap() - 0.92).abs() < 1e-12 && (from - 0.907_294).abs() < 1e-6);
        assert!((to - 0.932_706).abs() < 1e-6, "{to}");
        assert_eq!((result.at.as_str(), result.trials, result.trials_to_decide), ("base", 2, None));
        let outcome = |low, high| judged(claim(ClaimAt::Base, low, high)).status;
        assert_eq!(outcome(0.9, 1.0), Status::Holds);
        assert_eq!([outcome(0.91, 1.0), outcome(0.93, 1.0), outcome(0.5, 0.91)], [Status::Undecided; 3]);
        assert_eq!([outcome(0.94, 1.0), outcome(0.5, 0.90)], [Status::Fails; 2]);
        let one_edge = |low, high| judged(Claim { low, high, ..claim(ClaimAt::Base, 0.0, 0.0) }).status;
        assert_eq!([one_edge(Some(0.9), None), one_edge(None, Some(0.95))], [Status::Holds; 2]);
        assert_eq!([one_edge(Some(0.95), None), one_edge(None, Some(0.9))], [Status::Fails; 2]);
        // No spread, closed ends.
        let exact = judged(claim(ClaimAt::Point("n".to_owned(), "8".to_owned()), 0.8, 0.8));
        assert_eq!((exact.ok, exact.value, exact.at.as_str()), (true, Some(0.8), "n = 8"));
    }

    /// The half-width at n trials is t(n - 1) 0.001414 / sqrt(n): 0.00351 with 3, 0.00225 with 4.
    #[test]
    fn an_undecided_claim_says_how_many_trials_it_takes() {
        let trials = |low| judged(claim(ClaimAt::Base, low, 1.0)).trials_to_decide;
        assert_eq!([trials(0.9164), trials(0.9175), trials(0.9225)], [Some(3), Some(4), Some(4)]);
        assert_eq!(trials(0.92 - 1e-12), None);
    }

    #[test]
    fn one_trial_decides_nothing() {
        let (mut study, mut records) = small_study();
        records.retain(|record| record.trial == 0);
        study.claims = vec![claim(ClaimAt::Base, 0.0, 1.0), claim(ClaimAt::Base, 0.95, 1.0)];
        let results = evaluate(&study, &Summary::new(&study, &records));
        for result in results {
            assert_eq!((result.status, result.interval, result.trials), (Status::Undecided, None, 1));
        }
        assert!(Status::Undecided.is_failure(false) && !Status::Undecided.is_failure(true));
    }

    #[test]
    fn every_point_counts_and_the_least_margin_is_reported() {
        // Margins in [0.75, 1]: 0.92 leaves 0.08, 0.80 leaves 0.05.
        let result = judged(claim(every(), 0.75, 1.0));
        assert_eq!((result.status, result.value, result.at.as_str()), (Status::Holds, Some(0.8), "n = 8"));
        // In [0.70, 0.95]: 0.92 leaves 0.03, 0.80 leaves 0.10.
        let result = judged(claim(every(), 0.70, 0.95));
        assert_eq!((result.status, result.at.as_str()), (Status::Holds, "n = 4"));
        let result = judged(claim(every(), 0.85, 1.0));
        assert_eq!((result.status, result.value), (Status::Fails, Some(0.8)));
        let result = judged(claim(ClaimAt::Points("n".to_owned(), vec!["4".to_owned()]), 0.85, 1.0));
        assert_eq!(result.status, Status::Holds);
    }

    #[test]
    fn the_other_side_is_its_base_when_it_is_not_swept() {
        let against =
            Against { relation: Relation::Over, variant: Some("old".to_owned()), point: None, metric: None };
        // 0.92 / 0.46 = 2 and 0.80 / 0.46 = 1.739...: the latter is nearer to the band's end.
        let result = judged(Claim { against: Some(against.clone()), ..claim(every(), 1.7, 2.5) });
        assert_eq!(result.status, Status::Holds);
        assert!((result.value.unwrap() - 0.8 / 0.46).abs() < 1e-12);
        let difference = Against { relation: Relation::Minus, ..against.clone() };
        let result = judged(Claim { against: Some(difference), ..claim(ClaimAt::Base, 0.44, 0.48) });
        assert!((result.value.unwrap() - 0.46).abs() < 1e-12);
        // The same variant at another point: 0.80 - 0.92.
        let point = Some(("n".to_owned(), "4".to_owned()));
        let elsewhere = Against { relation: Relation::Minus, variant: None, point, metric: None };
        let at = ClaimAt::Point("n".to_owned(), "8".to_owned());
        let result = judged(Claim { against: Some(elsewhere), ..claim(at, -0.2, 0.0) });
        assert!((result.value.unwrap() + 0.12).abs() < 1e-12);
        // No drops over no drops is no number.
        let result = judged(Claim {
            against: Some(against),
            metric: "drops".to_owned(),
            ..claim(ClaimAt::Base, 0.0, 1.0)
        });
        assert_eq!((result.status, result.value), (Status::Missing, None));
    }

    #[test]
    fn missing_data_never_hold_and_never_hide_a_failure() {
        let (mut study, mut records) = small_study();
        records.retain(|record| record.case != 1);
        study.claims = vec![claim(every(), 0.75, 1.0), claim(every(), 0.95, 1.0)];
        let summary = Summary::new(&study, &records);
        let results = evaluate(&study, &summary);
        assert_eq!((results[0].status, results[0].ok, results[0].value), (Status::Missing, false, None));
        assert_eq!(results[0].at, "n = 8");
        assert_eq!(results[1].status, Status::Fails);
        let unknown = judged(claim(ClaimAt::Every("m".to_owned()), 0.0, 1.0));
        assert_eq!((unknown.status, unknown.at.as_str()), (Status::Missing, "no point"));
    }

    #[test]
    fn a_claim_that_is_known_not_to_be_reproduced_says_why_and_is_no_failure() {
        let why = Some("the topology figure is lost".to_owned());
        let outcome = |low| judged(Claim { not_reproduced: why.clone(), ..claim(ClaimAt::Base, low, 1.0) });
        let result = outcome(0.95);
        assert_eq!((result.status, result.ok), (Status::NotReproduced, false));
        assert!(result.value.is_some() && !result.status.is_failure(false));
        assert_eq!(result.not_reproduced, why);
        let counts = [Status::Fails, Status::Missing, Status::ReproducedAfterAll, Status::Holds];
        assert_eq!(counts.map(|status| status.is_failure(true)), [true, true, true, false]);
        // With 0.92 +-0.0127 it is no waiver for what holds, or may hold.
        assert_eq!(outcome(0.9).status, Status::ReproducedAfterAll);
        assert_eq!(outcome(0.919).status, Status::Undecided);
        assert_eq!(outcome(0.921).status, Status::NotReproduced);
    }

    fn trials<'a>(estimate: &'a Estimate, values: &'a [(u32, f64)]) -> Trials<'a> {
        Trials { estimate, values }
    }

    fn sides(
        first: [f64; 3],
        second: [f64; 3],
        judge: fn(&Trials<'_>, &Trials<'_>) -> Judged,
        shift: u32,
    ) -> Judged {
        let (a, b) = (Estimate::new(first).unwrap(), Estimate::new(second).unwrap());
        let [x, y] =
            [(first, 0), (second, shift)].map(|(values, shift)| (shift..).zip(values).collect::<Vec<_>>());
        judge(&trials(&a, &x), &trials(&b, &y))
    }

    /// Student's t is 4.302653 with 2 degrees of freedom and 2.776445 with 4.
    #[test]
    fn intervals_by_hand() {
        let is = |judged: Judged, from: f64, to: f64| {
            let [low, high] = judged.interval.unwrap();
            assert!((low - from).abs() < 1e-5 && (high - to).abs() < 1e-5, "{low} to {high}");
        };
        let third = 1.0 / 3.0_f64.sqrt();
        // Pairs that differ by 5, 5 and 5 have no spread; the same numbers of other trials have Welch's.
        is(sides([10.0, 11.0, 12.0], [5.0, 6.0, 7.0], difference, 0), 5.0, 5.0);
        let welch = 2.776_445 * (2.0_f64 / 3.0).sqrt();
        is(sides([10.0, 11.0, 12.0], [5.0, 6.0, 7.0], difference, 7), 5.0 - welch, 5.0 + welch);
        // A divisor without spread divides the interval; proportional pairs have none.
        let half = 4.302_653 * third / 5.0;
        is(sides([10.0, 11.0, 12.0], [5.0; 3], ratio, 0), 2.2 - half, 2.2 + half);
        is(sides([10.0, 11.0, 12.0], [5.0, 5.5, 6.0], ratio, 0), 2.0, 2.0);
        // Every r of the interval, and no other, has zero in the interval of the mean of a - r b.
        let (a, b) = ([10.0, 11.0, 14.0], [5.0, 6.0, 5.5]);
        let [from, to] = sides(a, b, ratio, 0).interval.unwrap();
        for (r, inside) in [(from - 1e-6, false), (from + 1e-6, true), (to - 1e-6, true), (to + 1e-6, false)]
        {
            let left = Estimate::new(a.iter().zip(b).map(|(a, b)| a - r * b)).unwrap();
            assert_eq!(left.mean.abs() <= left.ci95.unwrap(), inside, "{r}");
        }
        // A divisor that may be zero.
        assert_eq!(sides([10.0, 11.0, 12.0], [-1.0, 0.5, 1.0], ratio, 0).interval, None);
    }

    #[test]
    fn bands_in_words() {
        assert_eq!(band(Some(0.95), Some(1.0)), "0.95 to 1");
        assert_eq!(band(Some(2.0), Some(2.0)), "exactly 2");
        assert_eq!(band(Some(0.95), None), "at least 0.95");
        assert_eq!(band(None, Some(3.0)), "at most 3");
    }

    #[test]
    fn a_result_says_what_was_computed() {
        let over = Against {
            relation: Relation::Over,
            variant: Some("old".to_owned()),
            point: Some(("n".to_owned(), "4".to_owned())),
            metric: None,
        };
        let ratio = Claim { against: Some(over.clone()), ..claim(ClaimAt::Base, 0.0, 1.0) };
        assert_eq!(computed(&ratio), "Jain’s index of new over that of old at n = 4");
        let shortages = Claim {
            metric: "p1.shortage".to_owned(),
            against: Some(Against {
                relation: Relation::Minus,
                variant: None,
                point: None,
                metric: Some("p1.shortage_limit".to_owned()),
            }),
            ..ratio.clone()
        };
        let expected =
            "Time short of what is needed, p1 of new minus Time short of what is needed, at best, p1 of new";
        assert_eq!(computed(&shortages), expected);
        assert_eq!([unit(&ratio), unit(&shortages)], ["", "%"]);
    }

    #[test]
    fn json_has_the_agreed_keys() {
        let json = serde_json::to_value(judged(claim(ClaimAt::Base, 0.9, 1.0))).unwrap();
        for key in ["id", "ok", "value", "low", "high", "paper", "source"] {
            assert!(!json[key].is_null(), "{key}");
        }
        assert_eq!(json["status"], "holds");
    }
}

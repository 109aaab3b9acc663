//! Whether what a study claims came out.

use serde::Serialize;

use super::summary::{Summary, SummaryRow};
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
    /// The judged number, a mean over trials; with several points, the one with the least margin. None when data are
    /// missing.
    pub value: Option<f64>,
    /// Least value.
    pub low: f64,
    /// Largest value.
    pub high: f64,
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
    /// Why the claim is known not to be reproduced, when it is not.
    pub not_reproduced: Option<String>,
}

/// Outcome of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Every judged number is in the band.
    Holds,
    /// A judged number is outside the band.
    Fails,
    /// The study itself says that the paper's result is not reproduced, and why; the number is for information.
    NotReproduced,
    /// No judged number is outside the band, but not all are there.
    Missing,
}

impl Status {
    /// The word for people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Holds => "ok",
            Self::Fails => "FAILS",
            Self::NotReproduced => "not reproduced",
            Self::Missing => "NO DATA",
        }
    }

    /// True when a run with such a claim has not shown what it set out to show.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Fails | Self::Missing)
    }
}

/// A place where a claim looks.
#[derive(Clone, Copy)]
enum Place<'a> {
    Base,
    Point(&'a str, &'a str),
}

/// Judges every claim of `study`, in file order.
pub fn evaluate(study: &Study, summary: &Summary) -> Vec<ClaimResult> {
    study.claims.iter().map(|claim| judge(claim, study, summary)).collect()
}

fn judge(claim: &Claim, study: &Study, summary: &Summary) -> ClaimResult {
    let mut least: Option<(f64, f64, Place<'_>)> = None;
    let mut missing: Option<Place<'_>> = None;
    let places = places(claim, study);
    for &place in &places {
        let Some(value) = value_at(claim, place, summary).filter(|value| value.is_finite()) else {
            missing = missing.or(Some(place));
            continue;
        };
        let margin = (value - claim.low).min(claim.high - value);
        if least.is_none_or(|(smallest, ..)| margin < smallest) {
            least = Some((margin, value, place));
        }
    }
    let (status, value, at) = match (least, missing) {
        (Some((margin, value, place)), _) if margin < 0.0 => (Status::Fails, Some(value), Some(place)),
        (_, Some(place)) => (Status::Missing, None, Some(place)),
        (Some((_, value, place)), None) => (Status::Holds, Some(value), Some(place)),
        (None, None) => (Status::Missing, None, None),
    };
    let status = if claim.not_reproduced.is_some() { Status::NotReproduced } else { status };
    ClaimResult {
        id: claim.id.clone(),
        text: claim.text.clone(),
        ok: status == Status::Holds,
        status,
        value,
        low: claim.low,
        high: claim.high,
        metric: claim.metric.clone(),
        variant: claim.variant.clone(),
        at: at.map_or_else(|| "no point".to_owned(), Place::describe),
        paper: claim.paper.clone(),
        source: claim.source.clone(),
        not_reproduced: claim.not_reproduced.clone(),
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

fn value_at(claim: &Claim, place: Place<'_>, summary: &Summary) -> Option<f64> {
    let judged = mean(place.row(&claim.variant, summary)?, &claim.metric)?;
    let Some(against) = &claim.against else { return Some(judged) };
    let other =
        mean(other_row(claim, against, place, summary)?, against.metric.as_ref().unwrap_or(&claim.metric))?;
    Some(match against.relation {
        Relation::Minus => judged - other,
        Relation::Over => judged / other,
    })
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

fn mean(row: &SummaryRow, metric: &str) -> Option<f64> {
    row.metric(metric).map(|estimate| estimate.mean)
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
            low,
            high,
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
            values: vec!["4".to_owned(), "8".to_owned()],
            variants: vec!["new".to_owned()],
        });
        let records = vec![
            record(0, 0, &[("jain", 0.90), ("drops", 0.0)]),
            record(0, 1, &[("jain", 0.94), ("drops", 0.0)]),
            record(1, 0, &[("jain", 0.80), ("drops", 0.0)]),
            record(2, 0, &[("jain", 0.46), ("drops", 0.0)]),
        ];
        (study, records)
    }

    fn judged(claim: Claim) -> ClaimResult {
        let (mut study, records) = small_study();
        study.claims.push(claim);
        let summary = Summary::new(&study, &records);
        evaluate(&study, &summary).remove(0)
    }

    #[test]
    fn bands_have_two_sides_and_closed_ends() {
        let outcome = |low, high| judged(claim(ClaimAt::Base, low, high)).status;
        assert_eq!(outcome(0.9, 1.0), Status::Holds);
        assert_eq!(outcome(0.93, 1.0), Status::Fails);
        assert_eq!(outcome(0.5, 0.91), Status::Fails);
        let exact = judged(claim(ClaimAt::Point("n".to_owned(), "8".to_owned()), 0.8, 0.8));
        assert_eq!((exact.ok, exact.value, exact.at.as_str()), (true, Some(0.8), "n = 8"));
    }

    #[test]
    fn the_mean_over_trials_is_judged() {
        let result = judged(claim(ClaimAt::Base, 0.0, 1.0));
        assert!((result.value.unwrap() - 0.92).abs() < 1e-12);
        assert_eq!(result.at, "base");
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
        let result = judged(Claim { against: Some(difference), ..claim(ClaimAt::Base, 0.45, 0.47) });
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
        let result = judged(Claim { not_reproduced: why.clone(), ..claim(ClaimAt::Base, 0.95, 1.0) });
        assert_eq!((result.status, result.ok), (Status::NotReproduced, false));
        assert!(result.value.is_some() && !result.status.is_failure());
        assert_eq!(result.not_reproduced, why);
        assert!(Status::Fails.is_failure() && Status::Missing.is_failure() && !Status::Holds.is_failure());
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

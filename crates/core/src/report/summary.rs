//! Trials of a case as statistics of each metric of the summary.

use serde::{Serialize, Serializer};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::RunRecord;
use crate::scenario::{Case, Study};

/// Statistics of every case of a study.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Summary {
    /// One row per case, in the order of the study.
    pub rows: Vec<SummaryRow>,
}

/// Statistics of one case.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SummaryRow {
    /// Name of the variant.
    pub variant: String,
    /// Points that the case stands for: (sweep, value).
    #[serde(serialize_with = "as_map")]
    pub points: Vec<(String, String)>,
    /// True when this is the variant's base point.
    pub base: bool,
    /// Trials that finished.
    pub trials: u32,
    /// Metrics in the order of the records; one that no trial gives is absent.
    #[serde(serialize_with = "as_map")]
    pub metrics: Vec<(String, Estimate)>,
    /// Of each metric: trials and their finite values.
    #[serde(skip)]
    values: Vec<Vec<(u32, f64)>>,
}

/// Statistics of one metric over the trials that give it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// Number of trials with a finite value.
    pub n: u32,
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation; none for a single trial.
    pub sd: Option<f64>,
    /// Half-width of the 95 % confidence interval of the mean (Student's t); none for a single trial.
    pub ci95: Option<f64>,
    /// Median.
    pub median: f64,
    /// First quartile, interpolated linearly between the order statistics.
    pub q1: f64,
    /// Third quartile, likewise.
    pub q3: f64,
}

impl Summary {
    /// Statistics of `records`, which may come in any order and lack trials.
    pub fn new(study: &Study, records: &[RunRecord]) -> Self {
        let mut of_case: Vec<Vec<&RunRecord>> = vec![Vec::new(); study.cases.len()];
        for record in records {
            if let Some(trials) = of_case.get_mut(record.case) {
                trials.push(record);
            }
        }
        let rows = study.cases.iter().zip(of_case).map(|(case, mut trials)| {
            // The order of summation shows in the last bit.
            trials.sort_by_key(|record| record.trial);
            SummaryRow::new(case, &trials)
        });
        Self { rows: rows.collect() }
    }

    /// The base point of a variant.
    pub fn base(&self, variant: &str) -> Option<&SummaryRow> {
        self.rows.iter().find(|row| row.base && row.variant == variant)
    }

    /// A variant at one point of a sweep.
    pub fn point(&self, variant: &str, sweep: &str, value: &str) -> Option<&SummaryRow> {
        self.rows.iter().find(|row| row.variant == variant && row.is_at(sweep, value))
    }
}

impl SummaryRow {
    fn new(case: &Case, trials: &[&RunRecord]) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in trials.iter().flat_map(|record| &record.metrics) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let (mut metrics, mut values) = (Vec::new(), Vec::new());
        for name in names {
            let of = trials.iter().filter_map(|record| Some((record.trial, record.metric(name)?)));
            let of: Vec<(u32, f64)> = of.filter(|(_, value)| value.is_finite()).collect();
            let Some(estimate) = Estimate::new(of.iter().map(|(_, value)| *value)) else { continue };
            metrics.push((name.to_owned(), estimate));
            values.push(of);
        }
        Self {
            variant: case.variant.clone(),
            points: case.points.clone(),
            base: case.base,
            trials: trials.len() as u32,
            metrics,
            values,
        }
    }

    /// Statistics of a metric.
    pub fn metric(&self, name: &str) -> Option<&Estimate> {
        self.metrics.iter().find(|(n, _)| n == name).map(|(_, estimate)| estimate)
    }

    /// Trials and their values of a metric; empty when no trial gives it.
    pub fn values(&self, name: &str) -> &[(u32, f64)] {
        let place = self.metrics.iter().position(|(n, _)| n == name);
        place.map_or(&[], |place| &self.values[place])
    }

    /// True when the row stands for this point of a sweep.
    pub fn is_at(&self, sweep: &str, value: &str) -> bool {
        self.points.iter().any(|(s, v)| s == sweep && v == value)
    }
}

impl Estimate {
    /// Statistics of the finite ones of `values`; none when there are none.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        if values.is_empty() {
            return None;
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let sd = (values.len() > 1).then(|| {
            (values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (n - 1.0)).sqrt()
        });
        let mut sorted = values;
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            n: sorted.len() as u32,
            mean,
            sd,
            ci95: sd.and_then(|sd| Some(student_t_975(n - 1.0)? * sd / n.sqrt())),
            median: quartile(&sorted, 0.5),
            q1: quartile(&sorted, 0.25),
            q3: quartile(&sorted, 0.75),
        })
    }
}

/// Degrees of freedom from which Student's t is an expansion around the normal distribution: Abramowitz and Stegun,
/// 26.7.5.
const MANY: f64 = 2000.0;
/// The 97.5 % quantile of the normal distribution.
const NORMAL_975: f64 = 1.959_963_984_540_054;

/// The 97.5 % quantile of Student's t. Rounded to nine places, so that the last bits of a platform's mathematical
/// library do not reach a report.
pub(super) fn student_t_975(degrees: f64) -> Option<f64> {
    let quantile = if degrees > MANY {
        // The next term is below a ninth place; the library's search loses places here, and at 10^7 does not end.
        let z = NORMAL_975;
        z + (z.powi(3) + z) / (4.0 * degrees)
            + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * degrees.powi(2))
    } else {
        StudentsT::new(0.0, 1.0, degrees).ok()?.inverse_cdf(0.975)
    };
    Some((quantile * 1e9).round() / 1e9)
}

/// Interpolated, unlike [`super::quantile`]: trials are few, and a report's quartiles are those that R and NumPy give.
fn quartile(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let below = position.floor();
    let (low, high) = (sorted[below as usize], sorted[position.ceil() as usize]);
    low + (high - low) * (position - below)
}

fn as_map<S: Serializer, V: Serialize>(pairs: &[(String, V)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::report::Work;
    use crate::scenario::{ControlPlane, Faults, FlowRows, Measure, RecordDetail, RunPlan, Scenario};
    use crate::time::Span;
    use crate::topology::Topology;
    use crate::units::Bytes;

    pub(crate) fn case(variant: &str, points: &[(&str, &str)], base: bool) -> Case {
        let scenario = Scenario {
            name: "test".to_owned(),
            run: RunPlan {
                duration: Span::from_secs(1),
                warm_up: Span::ZERO,
                sample: Span::from_millis(100),
                trials: 2,
                seed: 1,
                partitions: 1,
            },
            topology: Topology {
                nodes: Vec::new(),
                links: Vec::new(),
                groups: Vec::new(),
                frame_overhead: Bytes::ZERO,
                host_delay: 0.0,
                rate_tolerance: 0.0,
            },
            flows: Vec::new(),
            schemes: Vec::new(),
            control: ControlPlane { delay: Span::ZERO, loss: 0.0 },
            faults: Faults::default(),
            measure: Measure {
                queue: None,
                record: RecordDetail::None,
                windows: Vec::new(),
                long_interval: Span::from_secs(1),
                gauges: Vec::new(),
                tracking: None,
                distributions: false,
                arrivals: false,
                flow_table: FlowRows::None,
                percentiles: false,
                ports: Vec::new(),
            },
        };
        let points = points.iter().map(|(sweep, value)| ((*sweep).to_owned(), (*value).to_owned())).collect();
        Case { variant: variant.to_owned(), points, base, scenario }
    }

    pub(crate) fn study(cases: Vec<Case>) -> Study {
        Study {
            name: "test".to_owned(),
            title: String::new(),
            description: String::new(),
            variants: Vec::new(),
            sweeps: Vec::new(),
            claims: Vec::new(),
            figures: Vec::new(),
            cases,
            quick: false,
        }
    }

    pub(crate) fn record(case: usize, trial: u32, metrics: &[(&str, f64)]) -> RunRecord {
        RunRecord {
            case,
            trial,
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            series: Vec::new(),
            distributions: Vec::new(),
            sample: Span::from_millis(100),
            work: Work::default(),
        }
    }

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-6, "{value} is not {expected}");
    }

    #[test]
    fn statistics_by_hand() {
        // 2, 4, 4, 6: mean 4, squares 4 + 0 + 0 + 4 = 8, sd sqrt(8/3); t with 3 degrees is 3.182446 (tables: 3.182).
        let estimate = Estimate::new([6.0, 4.0, 2.0, 4.0]).unwrap();
        assert_eq!(estimate.n, 4);
        near(estimate.mean, 4.0);
        near(estimate.sd.unwrap(), (8.0_f64 / 3.0).sqrt());
        near(estimate.ci95.unwrap(), 3.182_446_305 * (8.0_f64 / 3.0).sqrt() / 2.0);
        // Position 0.75 of 0..=3 is between 2 and 4: 2 + 0.75 * 2; position 2.25 is 4 + 0.25 * 2.
        near(estimate.q1, 3.5);
        near(estimate.median, 4.0);
        near(estimate.q3, 4.5);
    }

    #[test]
    fn quantiles_of_student_t_match_the_tables() {
        for (degrees, expected) in [(1.0, 12.706_205), (2.0, 4.302_653), (9.0, 2.262_157), (29.0, 2.045_230)]
        {
            near(student_t_975(degrees).unwrap(), expected);
        }
        let (exact, expanded) = (student_t_975(MANY).unwrap(), student_t_975(MANY + 1.0).unwrap());
        assert!((exact - expanded - 5.93e-7).abs() < 3e-9, "{exact} {expanded}");
        assert_eq!(student_t_975(f64::from(u32::MAX)), Some(1.959_963_985));
        assert_eq!(student_t_975(f64::NAN), None);
    }

    #[test]
    fn one_trial_has_no_interval_and_no_value_is_no_estimate() {
        let single = Estimate::new([0.5, f64::NAN, f64::INFINITY]).unwrap();
        assert_eq!((single.n, single.mean, single.sd, single.ci95), (1, 0.5, None, None));
        assert_eq!((single.q1, single.median, single.q3), (0.5, 0.5, 0.5));
        assert_eq!(Estimate::new([f64::NAN]), None);
    }

    #[test]
    fn rows_follow_the_cases_for_any_order_of_records() {
        let study = study(vec![
            case("a", &[("n", "4")], true),
            case("a", &[("n", "8")], false),
            case("b", &[], true),
        ]);
        let mut records = vec![
            record(0, 0, &[("jain", 0.1), ("queue", f64::NAN)]),
            record(0, 1, &[("jain", 0.2), ("queue", 7.0), ("burst.jain", 0.5)]),
            record(0, 2, &[("jain", 0.4)]),
            record(2, 0, &[("jain", f64::NAN)]),
        ];
        let summary = Summary::new(&study, &records);
        records.reverse();
        assert_eq!(Summary::new(&study, &records), summary);

        let base = summary.base("a").unwrap();
        assert_eq!(base, summary.point("a", "n", "4").unwrap());
        let names: Vec<&str> = base.metrics.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["jain", "queue", "burst.jain"]);
        assert_eq!(base.metric("queue").map(|e| (e.n, e.mean)), Some((1, 7.0)));
        assert_eq!(summary.point("a", "n", "8").map(|row| row.trials), Some(0));
        assert_eq!(summary.base("b").map(|row| row.metrics.len()), Some(0));
        assert_eq!(summary.point("b", "n", "4"), None);
    }

    #[test]
    fn rows_are_maps_in_json() {
        let study = study(vec![case("a", &[("n", "4")], true)]);
        let summary = Summary::new(&study, &[record(0, 0, &[("jain", 0.25)])]);
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json[0]["points"]["n"], "4");
        assert_eq!(json[0]["metrics"]["jain"]["mean"], 0.25);
        assert!(json[0]["metrics"]["jain"]["ci95"].is_null());
    }
}

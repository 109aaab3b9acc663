//! `[[claims]]`: what must come out; and what claims and figures may name.

use std::collections::BTreeMap;

use super::choices::FlowRows;
use super::keys;
use super::model::{Against, Claim, ClaimAt, PaperValue, Relation, Scenario};
use super::sources::Reader;
use super::study::{NoPoint, SweepDraft, VariantDraft, known_variants};
use crate::file::{Content, Item, Section, is_name, suggestion};
use crate::report::claims::range;
use crate::report::metric::{self, Place};

/// What claims and figures may name.
pub(super) struct Scope<'a> {
    pub(super) variants: &'a [VariantDraft],
    pub(super) sweeps: &'a [SweepDraft],
    /// The base scenario per variant.
    pub(super) bases: &'a [Scenario],
    /// A quick run.
    pub(super) quick: bool,
}

/// Where a claim or figure looks, before points that are not run now are left out.
enum Spot<'a> {
    Base,
    Point(&'a SweepDraft, (String, bool)),
    Every(&'a SweepDraft),
    Points(&'a SweepDraft, Vec<(String, bool)>),
}

impl<'a> Spot<'a> {
    pub(super) fn sweep(&self) -> Option<&'a SweepDraft> {
        match self {
            Self::Base => None,
            Self::Point(sweep, _) | Self::Every(sweep) | Self::Points(sweep, _) => Some(sweep),
        }
    }

    /// `None` when no point of it is run now.
    fn claim_at(&self) -> Option<ClaimAt> {
        match self {
            Self::Base => Some(ClaimAt::Base),
            Self::Point(sweep, (label, run)) => {
                run.then(|| ClaimAt::Point(sweep.name.clone(), label.clone()))
            }
            Self::Every(sweep) => Some(ClaimAt::Every(sweep.name.clone())),
            Self::Points(sweep, points) => {
                let run: Vec<String> =
                    points.iter().filter(|(_, run)| *run).map(|(l, _)| l.clone()).collect();
                (!run.is_empty()).then(|| ClaimAt::Points(sweep.name.clone(), run))
            }
        }
    }
}

impl<'a> Scope<'a> {
    pub(super) fn variant_names(&self) -> Vec<String> {
        self.variants.iter().map(|v| v.name.clone()).collect()
    }

    pub(super) fn base(&self, variant: &str) -> Option<&'a Scenario> {
        self.variants.iter().position(|v| v.name == variant).map(|i| &self.bases[i])
    }

    pub(super) fn sweep(
        &self,
        reader: &mut Reader,
        section: &Section<'_>,
        key: &str,
        name: &str,
    ) -> Option<&'a SweepDraft> {
        let sweep = self.sweeps.iter().find(|s| s.name == name);
        if sweep.is_none() {
            let names: Vec<&str> = self.sweeps.iter().map(|s| s.name.as_str()).collect();
            reader.fail_key_with(section, key, format!("unknown sweep `{name}`"), suggestion(name, &names));
        }
        sweep
    }

    /// Notes variants that `sweep` leaves out.
    pub(super) fn check_swept(
        &self,
        reader: &mut Reader,
        section: &Section<'_>,
        key: &str,
        sweep: &SweepDraft,
        variant: &str,
    ) -> bool {
        let swept = sweep.variants.iter().any(|v| v == variant);
        if !swept && self.base(variant).is_some() {
            let message = format!("variant `{variant}` is not in the sweep `{}`", sweep.name);
            reader.fail_key(section, key, message);
        }
        swept
    }

    /// The point that `at` names.
    pub(super) fn point(
        &self,
        reader: &mut Reader,
        section: &Section<'_>,
        key: &str,
    ) -> Option<(&'a SweepDraft, (String, bool))> {
        let item = section.item(key)?;
        let entries = item.table().map_or(&[][..], |t| &t.entries);
        let [entry] = entries else {
            let message = format!("{item} is not one point; write the name of a sweep = one value");
            reader.fail_key(section, key, message);
            return None;
        };
        let sweep = self.sweep(reader, section, key, &entry.key)?;
        Some((sweep, value_of(reader, section, key, sweep, &entry.item)?))
    }

    /// Notes a metric that `variant` does not have; true when it has it.
    pub(super) fn check_metric(
        &self,
        reader: &mut Reader,
        section: &Section<'_>,
        key: &str,
        name: &str,
        variant: &str,
    ) -> bool {
        let Some(base) = self.base(variant) else { return true };
        let mut of_runs = vec![Place::Summary, Place::Arrivals, Place::Spread];
        if !base.faults.outages.is_empty() {
            of_runs.push(Place::Faults);
        } else if metric::find_at(&[Place::Faults], name).is_some() {
            let message = format!("\"{name}\" is of links and nodes that fail");
            let hint = "write [[faults.links]] or [[faults.nodes]]";
            reader.fail_key_with(section, key, message, hint);
            return false;
        }
        let known = |name: &str| metric::find_at(&of_runs, name).is_some();
        let has_need = |group: &str| base.flows.iter().any(|g| g.name == group && g.need.is_some());
        let of_tracking = metric::find_at(&[Place::Tracking], name).is_some();
        let has_gauge =
            |(node, gauge): (&str, &str)| base.measure.gauges.iter().any(|(n, g)| n == node && g == gauge);
        let sums_up = metric::of_gauge(name).map(|(node, gauge, _)| (node, gauge.name));
        if let Some((node, gauge)) = sums_up.filter(|gauge| !has_gauge(*gauge)) {
            let message = format!("\"{name}\" is of a gauge that `measure.gauges` does not name");
            let hint = format!("write measure.gauges = [\"{node}.{gauge}\"]");
            reader.fail_key_with(section, key, message, hint);
            return false;
        }
        if of_tracking && base.measure.tracking.is_none() {
            let message = format!("\"{name}\" needs [measure.tracking]");
            let hint = "say there which estimate is compared with which port";
            reader.fail_key_with(section, key, message, hint);
            return false;
        }
        let bare = metric::summarised(name).map_or(name, |(_, metric)| metric.name);
        let of_ports = name.contains("->") && !base.measure.ports.is_empty();
        if metric::find_at(&[Place::Spread], bare).is_some() && !base.measure.distributions && !of_ports {
            let message = format!("\"{name}\" needs distributions");
            reader.fail_key_with(section, key, message, "write `distributions = true` in [measure]");
            return false;
        }
        if metric::find_at(&[Place::Arrivals], bare).is_some() && !base.measure.arrivals {
            let message = format!("\"{name}\" is not measured");
            reader.fail_key_with(section, key, message, "write `arrivals = true` in [measure]");
            return false;
        }
        let (of, own) = name.split_once('.').map_or((None, name), |(of, own)| (Some(of), own));
        let of_rtts = metric::find_at(&[Place::RoundTrips], own).is_some()
            && of.is_none_or(|of| base.flows.iter().any(|group| group.name == of));
        if of_rtts && base.measure.flow_table != FlowRows::Rtt {
            let message = format!("\"{name}\" is not measured");
            reader.fail_key_with(section, key, message, "write `flow-table = \"rtt\"` in [measure]");
            return false;
        }
        let of_port = name.rsplit_once('.').filter(|(of, _)| of.contains("->")).is_some_and(|(of, own)| {
            let port = base.topology.port(of);
            own.starts_with("sojourn_")
                && metric::find_at(&[Place::Spread], own).is_some()
                && port.is_some_and(|port| base.measure.ports.contains(&port))
        });
        let sound = known(name)
            || of_port
            || of_rtts
            || of_tracking
            || sums_up.is_some()
            || name.split_once('.').is_some_and(|(of, metric)| {
                metric::find_at(&[Place::Group], metric).is_some() && has_need(of)
                    || known(metric) && base.measure.windows.iter().any(|w| w.name == of)
            });
        if !sound {
            let places = [&of_runs[..], &[Place::RoundTrips]].concat();
            let mut names: Vec<String> = metric::at(&places).map(|metric| metric.name.to_owned()).collect();
            if let Some((window, metric)) = name.split_once('.') {
                if known(metric) {
                    let windows: Vec<&str> = base.measure.windows.iter().map(|w| w.name.as_str()).collect();
                    let message = format!("unknown window `{window}` in \"{name}\"");
                    reader.fail_key_with(section, key, message, suggestion(window, &windows));
                    return false;
                }
                names = names.into_iter().map(|n| format!("{window}.{n}")).collect();
            }
            let message = format!("unknown metric \"{name}\"");
            reader.fail_key_with(section, key, message, suggestion(name, &names));
        }
        sound
    }
}

/// The values that the paper reports, by the variant's name.
pub(super) fn paper(
    reader: &mut Reader,
    top: &Section<'_>,
    scope: &Scope<'_>,
) -> BTreeMap<String, Vec<PaperValue>> {
    let mut of_variants = BTreeMap::new();
    for layer in reader.tables(top, "compare") {
        let variant = reader.section(&keys::VARIANT, &layer);
        let Some(name) = variant.text("name") else { continue };
        let mut values: Vec<PaperValue> = Vec::new();
        for layer in reader.tables(&variant, "paper") {
            let section = reader.section(&keys::PAPER, &layer);
            let (Some(metric), Some(value)) = (section.text("metric"), section.float("value")) else {
                continue;
            };
            if values.iter().any(|known| known.metric == metric) {
                reader.fail_key(&section, "metric", format!("\"{metric}\" stands here twice"));
            }
            scope.check_metric(reader, &section, "metric", &metric, &name);
            values.push(PaperValue { metric, value });
        }
        of_variants.insert(name, values);
    }
    of_variants
}

/// A point of `sweep`, as the sweep writes it, and whether it is run now.
fn value_of(
    reader: &mut Reader,
    section: &Section<'_>,
    key: &str,
    sweep: &SweepDraft,
    value: &Item,
) -> Option<(String, bool)> {
    values_of(reader, section, key, sweep, (value, true))?.pop()
}

/// The points of `sweep` that a value names; of a grid and unless it must be `whole`, some of its keys are enough.
fn values_of(
    reader: &mut Reader,
    section: &Section<'_>,
    key: &str,
    sweep: &SweepDraft,
    (value, whole): (&Item, bool),
) -> Option<Vec<(String, bool)>> {
    match sweep.named(value, whole) {
        Ok(points) => Some(points),
        Err(NoPoint { item, why, hint }) => {
            reader.fail_with(&item.place, section.key_path(key), why, hint);
            None
        }
    }
}

/// Reads the claims; those that are not judged now, or about points that are not run now, are left out.
pub(super) fn claims(reader: &mut Reader, top: &Section<'_>, scope: &Scope<'_>) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    let mut names = Vec::new();
    for layer in reader.tables(top, "claims") {
        let section = reader.section(&keys::CLAIM, &layer);
        if let Some(id) = section.text("id")
            && !id.split(['.', '/']).all(is_name)
        {
            let message = format!("\"{id}\" is not made of letters, digits, -, _, . and /");
            reader.fail_key(&section, "id", message);
        }
        names.extend(section.name_entry("id"));
        claims.extend(claim(reader, &section, scope).unwrap_or_default());
    }
    reader.unique(&names);
    claims
}

fn claim(reader: &mut Reader, section: &Section<'_>, scope: &Scope<'_>) -> Option<Vec<Claim>> {
    let errors_before = reader.errors.len();
    let variants = known_variants(reader, section, "variant", &scope.variant_names());
    let metric = section.text("metric");
    let other = section.text("minus").or_else(|| section.text("over"));
    let other = other.filter(|_| section.item("against-metric").is_none());
    if let Some(metric) = &metric {
        let judged = variants.iter().flatten().chain(&other);
        // One message is enough when several variants lack the metric.
        let _ =
            judged.into_iter().all(|variant| scope.check_metric(reader, section, "metric", metric, variant));
    }
    if variants.as_ref().is_some_and(Vec::is_empty) {
        reader.fail_key(section, "variant", "is an empty list");
    }
    let (low, high) = (section.float("low"), section.float("high"));
    let is_written = ["low", "high"].map(|key| section.item(key).is_some());
    match (low, high) {
        (Some(low), Some(high)) if low > high => {
            reader.fail_key(section, "low", format!("{low} is above `high`, {high}"));
        }
        _ if is_written == [false; 2] => {
            reader.fail_key(section, "low", "is missing, and `high` too; write one of them or both");
        }
        _ => {}
    }
    let spot = spot(reader, section, scope);
    if let Some(sweep) = spot.as_ref().and_then(Spot::sweep) {
        let key = if section.item("at").is_some() { "at" } else { "sweep" };
        for variant in variants.iter().flatten() {
            scope.check_swept(reader, section, key, sweep, variant);
        }
    }
    let against = against(reader, section, scope, spot.as_ref(), variants.as_deref().unwrap_or_default());
    if let (Some(metric), true) = (&metric, reader.errors.len() == errors_before) {
        refuse_what_decides_nothing(reader, section, metric);
    }
    if reader.errors.len() > errors_before {
        return None;
    }
    let (id, metric, variants) = (section.text("id")?, metric?, variants?);
    let against = against?;
    let at = spot?.claim_at();
    let (Some(at), Some(against)) = (at, against.run) else { return Some(Vec::new()) };
    if scope.quick && !section.bool("quick")? {
        return Some(Vec::new());
    }
    let several = matches!(section.item("variant").map(|i| &i.content), Some(Content::List(_)));
    let claim = |variant: String| {
        Some(Claim {
            id: if several { format!("{id}/{variant}") } else { id.clone() },
            text: section.text("text")?,
            metric: metric.clone(),
            variant,
            against: against.clone(),
            at: at.clone(),
            low,
            high,
            because: section.text("because")?,
            paper: section.text("paper")?,
            source: section.text("source")?,
            not_reproduced: section.text("not-reproduced"),
        })
    };
    variants.into_iter().map(claim).collect()
}

/// Notes an edge that every value of the claim's number passes, or none.
fn refuse_what_decides_nothing(reader: &mut Reader, section: &Section<'_>, metric: &str) {
    let relation = match (section.item("minus"), section.item("over")) {
        (Some(_), _) => Some(Relation::Minus),
        (None, Some(_)) => Some(Relation::Over),
        (None, None) => None,
    };
    let [least, most] = range(metric, relation);
    for key in ["low", "high"] {
        let Some(edge) = section.float(key) else { continue };
        let is_low = key == "low";
        let cannot_fail = if is_low { edge <= least } else { edge >= most };
        let cannot_hold = if is_low { edge > most } else { edge < least };
        if !cannot_fail && !cannot_hold {
            continue;
        }
        let what = if cannot_fail { "fail" } else { "hold" };
        let (side, bound) = if is_low == cannot_fail { ("below", least) } else { ("above", most) };
        let message = format!("{edge} cannot {what}: what is judged is never {side} {bound}");
        let hint = match (cannot_fail, is_low) {
            (true, _) => format!("leave `{key}` out"),
            (false, true) => format!("write less than {most}"),
            (false, false) => format!("write more than {least}"),
        };
        reader.fail_key_with(section, key, message, hint);
    }
}

fn spot<'a>(reader: &mut Reader, section: &Section<'_>, scope: &Scope<'a>) -> Option<Spot<'a>> {
    if section.item("at").is_some() {
        for key in ["sweep", "points"] {
            if section.item(key).is_some() {
                reader.fail_key(section, key, "conflicts with `at`; a claim has one of them");
            }
        }
        let (sweep, value) = scope.point(reader, section, "at")?;
        return Some(Spot::Point(sweep, value));
    }
    let Some(name) = section.text("sweep") else {
        if section.item("points").is_some() {
            reader.fail_key(section, "points", "also needs `sweep`");
            return None;
        }
        return section.item("sweep").is_none().then_some(Spot::Base);
    };
    let sweep = scope.sweep(reader, section, "sweep", &name)?;
    if section.item("points").is_none() {
        return Some(Spot::Every(sweep));
    }
    let items = reader.items(section, "points")?;
    if items.is_empty() {
        reader.fail_key(section, "points", "is an empty list");
    }
    let mut points = Vec::new();
    for item in items {
        for point in values_of(reader, section, "points", sweep, (item, false)).unwrap_or_default() {
            if !points.contains(&point) {
                points.push(point);
            }
        }
    }
    Some(Spot::Points(sweep, points))
}

/// The other side of a claim; `run` is none when its point is not run now.
struct OtherSide {
    run: Option<Option<Against>>,
}

fn against(
    reader: &mut Reader,
    section: &Section<'_>,
    scope: &Scope<'_>,
    spot: Option<&Spot<'_>>,
    judged: &[String],
) -> Option<OtherSide> {
    let (key, relation) = match (section.item("minus"), section.item("over")) {
        (Some(_), Some(_)) => {
            reader.fail_key(section, "over", "conflicts with `minus`; a claim has one of them");
            return None;
        }
        (Some(_), None) => ("minus", Relation::Minus),
        (None, Some(_)) => ("over", Relation::Over),
        (None, None) => {
            for key in ["against-metric", "against-point"] {
                if section.item(key).is_some() {
                    reader.fail_key(section, key, "also needs `minus` or `over`");
                }
            }
            return Some(OtherSide { run: Some(None) });
        }
    };
    let variant = section.text(key)?;
    let names = scope.variant_names();
    if !names.contains(&variant) {
        let message = format!("unknown variant `{variant}`");
        reader.fail_key_with(section, key, message, suggestion(&variant, &names));
        return None;
    }
    let metric = section.text("against-metric");
    if let Some(metric) = &metric {
        scope.check_metric(reader, section, "against-metric", metric, &variant);
    }
    let mut point = None;
    let mut run = true;
    if let Some(value) = section.item("against-point") {
        let Some(sweep) = spot.and_then(Spot::sweep) else {
            if spot.is_some() {
                let message = "also needs `at` or `sweep`, to say which sweep";
                reader.fail_key(section, "against-point", message);
            }
            return None;
        };
        scope.check_swept(reader, section, key, sweep, &variant);
        let (label, is_run) = value_of(reader, section, "against-point", sweep, value)?;
        run = is_run;
        point = Some((sweep.name.clone(), label));
    } else if metric.is_none() && judged.contains(&variant) {
        let message = format!("compares `{variant}` with itself");
        let hint = "name another variant, or an `against-point` or `against-metric`";
        reader.fail_key_with(section, key, message, hint);
    }
    let against = Against { relation, variant: Some(variant), point, metric };
    Some(OtherSide { run: run.then_some(Some(against)) })
}

//! `[[claims]]` and `[[figures]]`: what must come out, and how it is drawn.

use std::collections::BTreeMap;

use super::choices::{CdfOf, FigureKind, FlowRows, RecordDetail};
use super::keys;
use super::model::{
    Against, Claim, ClaimAt, FLOW_VALUES, Figure, FigureCases, FigureContent, FlowGroup, PaperValue,
    ReferenceCurve, Relation, Scenario,
};
use super::sources::Reader;
use super::study::{NoPoint, SweepDraft, VariantDraft, known_variants};
use crate::file::{Content, Item, Section, is_name, suggestion};
use crate::params::Written;
use crate::report::claims::range;
use crate::report::metric::{self, Place, label};

/// What claims and figures may name.
pub(super) struct Scope<'a> {
    pub(super) variants: &'a [VariantDraft],
    pub(super) sweeps: &'a [SweepDraft],
    /// The base scenario of each variant.
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
    fn sweep(&self) -> Option<&'a SweepDraft> {
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
    fn variant_names(&self) -> Vec<String> {
        self.variants.iter().map(|v| v.name.clone()).collect()
    }

    fn base(&self, variant: &str) -> Option<&'a Scenario> {
        self.variants.iter().position(|v| v.name == variant).map(|i| &self.bases[i])
    }

    fn sweep(
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
    fn check_swept(
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
    fn point(
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
    fn check_metric(
        &self,
        reader: &mut Reader,
        section: &Section<'_>,
        key: &str,
        name: &str,
        variant: &str,
    ) -> bool {
        let Some(base) = self.base(variant) else { return true };
        let of_runs = [Place::Summary, Place::Arrivals, Place::Spread];
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

/// What the paper reports of each variant, by the variant's name.
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
        refuse_what_cannot_fail(reader, section, metric);
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

/// Notes an edge at or beyond an end of what the claim's number can be.
fn refuse_what_cannot_fail(reader: &mut Reader, section: &Section<'_>, metric: &str) {
    let relation = match (section.item("minus"), section.item("over")) {
        (Some(_), _) => Some(Relation::Minus),
        (None, Some(_)) => Some(Relation::Over),
        (None, None) => None,
    };
    let [least, most] = range(metric, relation);
    for (key, side, bound) in [("low", "below", least), ("high", "above", most)] {
        let Some(edge) = section.float(key) else { continue };
        let cannot_fail = if key == "low" { edge <= bound } else { edge >= bound };
        if cannot_fail {
            let message = format!("{edge} cannot fail: what is judged is never {side} {bound}");
            reader.fail_key_with(section, key, message, format!("leave `{key}` out"));
        }
    }
}

fn spot<'a>(reader: &mut Reader, section: &Section<'_>, scope: &Scope<'a>) -> Option<Spot<'a>> {
    if section.item("at").is_some() {
        for key in ["sweep", "points"] {
            if section.item(key).is_some() {
                reader.fail_key(section, key, "stands beside `at`; a claim has one of them");
            }
        }
        let (sweep, value) = scope.point(reader, section, "at")?;
        return Some(Spot::Point(sweep, value));
    }
    let Some(name) = section.text("sweep") else {
        if section.item("points").is_some() {
            reader.fail_key(section, "points", "needs `sweep` beside it");
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
            reader.fail_key(section, "over", "stands beside `minus`; a claim has one of them");
            return None;
        }
        (Some(_), None) => ("minus", Relation::Minus),
        (None, Some(_)) => ("over", Relation::Over),
        (None, None) => {
            for key in ["against-metric", "against-point"] {
                if section.item(key).is_some() {
                    reader.fail_key(section, key, "needs `minus` or `over` beside it");
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
                let message = "needs `at` or `sweep` beside it, to say which sweep";
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

/// Reads the figures; one about a point that is not run now is left out.
pub(super) fn figures(reader: &mut Reader, top: &Section<'_>, scope: &Scope<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut names = Vec::new();
    for layer in reader.tables(top, "figures") {
        let section = reader.section(&keys::FIGURE, &layer);
        let _ = reader.name(&section, "id");
        names.extend(section.name_entry("id"));
        figures.extend(figure(reader, &section, scope));
    }
    reader.unique(&names);
    figures
}

fn figure(reader: &mut Reader, section: &Section<'_>, scope: &Scope<'_>) -> Option<Figure> {
    let all = scope.variant_names();
    let variants = known_variants(reader, section, "variants", &all).unwrap_or(all);
    let references = references(reader, section);
    let kind = section.choice("kind")?;
    let has_curves =
        matches!(kind, FigureKind::Sweep | FigureKind::Series | FigureKind::Distribution | FigureKind::Cdf);
    if !has_curves && section.item("references").is_some() {
        let hint = "leave them out, or draw \"sweep\", \"series\", \"distribution\" or \"cdf\"";
        reader.fail_key_with(section, "references", "are curves, and this kind of figure has none", hint);
    }
    let content = match kind {
        FigureKind::Sweep => {
            let sweep = section.text("sweep").and_then(|name| scope.sweep(reader, section, "sweep", &name));
            let y = section.text("y")?;
            let _ = variants.iter().all(|variant| scope.check_metric(reader, section, "y", &y, variant));
            check_sweep(reader, section, sweep, &variants);
            let sweep = sweep?;
            let x = section.text("x");
            if let Some(x) = &x {
                let names = sweep.grid_names();
                if names.is_empty() {
                    reader.fail_key(
                        section,
                        "x",
                        format!("is of grids; the sweep `{}` has one key", sweep.name),
                    );
                } else if !names.contains(&x.as_str()) {
                    let message = format!("the grid `{}` has no key `{x}`", sweep.name);
                    reader.fail_key_with(section, "x", message, suggestion(x, &names));
                }
            }
            FigureContent::Sweep { sweep: sweep.name.clone(), y, x, log_x: section.bool("log-x")? }
        }
        FigureKind::Heatmap => {
            let sweep = section.text("sweep").and_then(|name| scope.sweep(reader, section, "sweep", &name));
            let z = section.text("z")?;
            let _ = variants.iter().all(|variant| scope.check_metric(reader, section, "z", &z, variant));
            check_sweep(reader, section, sweep, &variants);
            let sweep = sweep?;
            let keys = sweep.grid_names().len().max(1);
            if keys != 2 {
                let message =
                    format!("has {keys} key{}, and a heatmap is over two", if keys == 1 { "" } else { "s" });
                reader.fail_key_with(section, "sweep", message, "name a sweep with a `grid` of two keys");
            }
            FigureContent::Heatmap { sweep: sweep.name.clone(), z }
        }
        FigureKind::Cdf => {
            let (of, x) = (section.choice::<CdfOf>("of")?, section.text("x")?);
            match of {
                CdfOf::Flows => {
                    let value = FLOW_VALUES.iter().find(|(name, ..)| *name == x);
                    if value.is_none() {
                        let names = FLOW_VALUES.map(|(name, ..)| name);
                        let message = format!("\"{x}\" is not a value of flows");
                        reader.fail_key_with(section, "x", message, suggestion(&x, &names));
                    }
                    check_flows(reader, section, scope, &variants, value.is_some_and(|(_, _, rtt)| *rtt));
                }
                CdfOf::Trials => {
                    let _ = variants.iter().all(|v| scope.check_metric(reader, section, "x", &x, v));
                    if section.item("group").is_some() {
                        reader.fail_key(section, "group", "is of flows, not of trials");
                    }
                }
            }
            let cases = figure_cases(reader, section, scope, &variants)?;
            FigureContent::Cdf { of, x, group: section.text("group"), cases, log_x: section.bool("log-x")? }
        }
        FigureKind::Slowdown => {
            check_flows(reader, section, scope, &variants, false);
            let bins = u32::try_from(section.integer("bins")?).ok()?;
            let cases = figure_cases(reader, section, scope, &variants)?;
            FigureContent::Slowdown { group: section.text("group"), bins, cases }
        }
        FigureKind::Box => {
            let y = section.text("y")?;
            let _ = variants.iter().all(|variant| scope.check_metric(reader, section, "y", &y, variant));
            FigureContent::Box { y, cases: figure_cases(reader, section, scope, &variants)? }
        }
        FigureKind::Bars => {
            let metrics = section.list("metrics")?;
            if metrics.is_empty() {
                reader.fail_key(section, "metrics", "is an empty list");
            }
            for metric in &metrics {
                let _ = variants.iter().all(|v| scope.check_metric(reader, section, "metrics", metric, v));
            }
            let unit = |name: &str| label(name).unit;
            if let Some(other) = metrics.iter().find(|metric| unit(metric) != unit(&metrics[0])) {
                let message =
                    format!("\"{other}\" has not the unit of \"{}\"; bars share an axis", metrics[0]);
                reader.fail_key(section, "metrics", message);
            }
            FigureContent::Bars { metrics, cases: figure_cases(reader, section, scope, &variants)? }
        }
        FigureKind::Distribution => {
            for variant in &variants {
                let Some(measure) = scope.base(variant).map(|base| &base.measure) else { continue };
                if section.text("x").as_deref() == Some("rtt") {
                    if measure.flow_table != FlowRows::Rtt {
                        let message = format!("\"rtt\" is not measured in variant `{variant}`");
                        let hint = "write `flow-table = \"rtt\"` in [measure]";
                        reader.fail_key_with(section, "x", message, hint);
                        break;
                    }
                } else if !measure.distributions {
                    let message = format!(
                        "draws a distribution, but `measure.distributions` of variant `{variant}` is false"
                    );
                    reader.fail_key(section, "kind", message);
                    break;
                }
            }
            FigureContent::Distribution { x: section.text("x")?, log_x: section.bool("log-x")? }
        }
        FigureKind::Series => series(reader, section, scope, &variants)?,
    };
    Some(Figure {
        id: section.text("id")?,
        title: section.text("title")?,
        source: section.text("source")?,
        content,
        variants,
        references,
    })
}

/// True for a series of percentiles of delays.
fn is_delay(name: &str) -> bool {
    ["rtt_", "queueing_", "sojourn_"].iter().any(|of| name.starts_with(of))
}

fn series(
    reader: &mut Reader,
    section: &Section<'_>,
    scope: &Scope<'_>,
    variants: &[String],
) -> Option<FigureContent> {
    let y = section.list("y")?;
    if y.is_empty() {
        reader.fail_key(section, "y", "is an empty list");
    }
    for name in y.iter().filter(|name| !metric::DRAWN.contains(&name.as_str())) {
        let message = format!("\"{name}\" is no metric over time");
        reader.fail_key_with(section, "y", message, suggestion(name, metric::DRAWN));
    }
    if let Some(other) = y.iter().find(|name| label(name).unit != label(&y[0]).unit) {
        let message = format!("\"{other}\" has not the unit of \"{}\"; panels share an axis", y[0]);
        reader.fail_key(section, "y", message);
    }
    for variant in variants {
        let Some(base) = scope.base(variant) else { continue };
        if base.measure.record == RecordDetail::None {
            let message = format!("draws a series, but `measure.record` of variant `{variant}` is \"none\"");
            reader.fail_key(section, "kind", message);
            break;
        }
        let shown: Vec<String> = y.iter().cloned().chain(section.text("beside")).collect();
        let of_node = |name: &String| name == "free" || metric::find_at(&[Place::Shown], name).is_some();
        if let Some(name) = shown.iter().find(|name| is_delay(name) && !base.measure.percentiles) {
            let key = if y.contains(name) { "y" } else { "beside" };
            let message = format!("\"{name}\" is not recorded in variant `{variant}`");
            reader.fail_key_with(section, key, message, "write `percentiles = true` in [measure]");
            break;
        }
        for entity in section.list("entities").unwrap_or_default() {
            if shown.iter().any(of_node) {
                check_node(reader, section, base, &entity);
            } else {
                let is_port = base.measure.percentiles
                    && shown.iter().all(|name| name.starts_with("sojourn"))
                    && base.topology.port(&entity).is_some_and(|port| base.measure.ports.contains(&port));
                if !is_port {
                    check_entity(reader, section, base, &entity);
                }
            }
        }
        if base.measure.tracking.is_none() && shown.iter().any(|name| name == "free") {
            let key = if y.iter().any(|name| name == "free") { "y" } else { "beside" };
            reader.fail_key(section, key, "\"free\" needs [measure.tracking]");
            break;
        }
    }
    let FigureCases { sweep, at } = figure_cases(reader, section, scope, variants)?;
    let trial = section.integer("trial").and_then(|trial| u32::try_from(trial).ok());
    let fewest = variants.iter().filter_map(|variant| Some(scope.base(variant)?.run.trials)).min();
    if let (Some(trial), Some(fewest)) = (trial, fewest.filter(|fewest| trial.is_some_and(|t| t >= *fewest)))
    {
        reader.fail_key(section, "trial", format!("{trial} is not run: there are {fewest} trials, from 0"));
    }
    let average = section.span("average");
    let sample = variants.iter().filter_map(|variant| Some(scope.base(variant)?.run.sample)).max();
    if let (Some(average), Some(sample)) = (average, sample)
        && average < sample
    {
        reader.fail_key(section, "average", format!("{average} is shorter than a sample, {sample}"));
    }
    Some(FigureContent::Series {
        y,
        entities: section.list("entities")?,
        sweep,
        at,
        beside: section.text("beside"),
        trial,
        average,
    })
}

/// Notes when none of the variants is in the sweep.
fn check_sweep(reader: &mut Reader, section: &Section<'_>, sweep: Option<&SweepDraft>, variants: &[String]) {
    if let Some(sweep) = sweep
        && !variants.iter().any(|v| sweep.variants.contains(v))
    {
        let message = format!("none of the variants is in the sweep `{}`", sweep.name);
        reader.fail_key(section, "sweep", message);
    }
}

/// The cases that a figure names; none when its point is not run now.
fn figure_cases(
    reader: &mut Reader,
    section: &Section<'_>,
    scope: &Scope<'_>,
    variants: &[String],
) -> Option<FigureCases> {
    let sweep = section.text("sweep").map(|name| scope.sweep(reader, section, "sweep", &name));
    if section.item("sweep").is_some() && section.item("at").is_some() {
        reader.fail_key(section, "at", "stands beside `sweep`; a figure has one of them");
        return None;
    }
    let mut at = None;
    if section.item("at").is_some() {
        let (sweep, (label, run)) = scope.point(reader, section, "at")?;
        for variant in variants {
            scope.check_swept(reader, section, "at", sweep, variant);
        }
        if !run {
            return None;
        }
        at = Some((sweep.name.clone(), label));
    }
    let sweep = match sweep {
        None => None,
        Some(sweep) => Some(sweep?.name.clone()),
    };
    Some(FigureCases { sweep, at })
}

/// Checks a figure of values of flows: they are recorded, and its group exists.
fn check_flows(
    reader: &mut Reader,
    section: &Section<'_>,
    scope: &Scope<'_>,
    variants: &[String],
    needs_rtt: bool,
) {
    for variant in variants {
        let Some(base) = scope.base(variant) else { continue };
        let rows = base.measure.flow_table;
        if rows == FlowRows::None || needs_rtt && rows != FlowRows::Rtt {
            let word = if needs_rtt { "rtt" } else { "counts" };
            let message = format!("draws values of flows, which variant `{variant}` does not record");
            let hint = format!("write `flow-table = \"{word}\"` in [measure]");
            reader.fail_key_with(section, "kind", message, hint);
            break;
        }
        let names: Vec<&str> = base.flows.iter().map(|group| group.name.as_str()).collect();
        let group = section.text("group");
        if let Some(group) = group.filter(|group| !names.contains(&group.as_str())) {
            let message = format!("unknown flow group `{group}`");
            reader.fail_key_with(section, "group", message, suggestion(&group, &names));
            break;
        }
    }
}

/// Gauges are series of nodes.
fn check_node(reader: &mut Reader, section: &Section<'_>, base: &Scenario, entity: &str) {
    if base.topology.node(entity).is_none() {
        let names: Vec<&str> = base.topology.nodes.iter().map(|node| node.name.as_str()).collect();
        let message = format!("no node is called \"{entity}\"; a gauge is of a node");
        reader.fail_key_with(section, "entities", message, suggestion(entity, &names));
    }
}

/// Series are named by the groups or hosts that send measured flows, when there are several of them, and by flow.
fn check_entity(reader: &mut Reader, section: &Section<'_>, base: &Scenario, entity: &str) {
    let measured = || base.flows.iter().filter(|group| group.measured);
    let mut names = vec!["all"];
    for sender in measured().flat_map(|group| &group.from) {
        if !names.contains(&sender.as_str()) {
            names.push(sender);
        }
    }
    if names.len() == 2 {
        names.truncate(1);
    }
    let is_flow = || {
        let Some((source, number)) = entity.rsplit_once('.') else { return false };
        let of = |group: &FlowGroup| group.from.iter().any(|from| source == format!("{}.{from}", group.name));
        number.parse::<u32>().is_ok() && measured().any(of)
    };
    let is_recorded = names.contains(&entity) || base.measure.record == RecordDetail::Flows && is_flow();
    if !is_recorded {
        let message = format!("unknown sender `{entity}`");
        reader.fail_key_with(section, "entities", message, suggestion(entity, &names));
    }
}

fn references(reader: &mut Reader, figure: &Section<'_>) -> Vec<ReferenceCurve> {
    let mut curves = Vec::new();
    for layer in reader.tables(figure, "references") {
        let section = reader.section(&keys::REFERENCE, &layer);
        let x = numbers(reader, &section, "x");
        let mut column = |key: &str| {
            let values = numbers(reader, &section, key);
            if section.item(key).is_some() && values.len() != x.len() {
                let message = format!("has {} values for {} positions", values.len(), x.len());
                reader.fail_key(&section, key, message);
            }
            values
        };
        let (y, low, high) = (column("y"), column("low"), column("high"));
        if low.is_empty() != high.is_empty() {
            let (given, missing) = if high.is_empty() { ("low", "high") } else { ("high", "low") };
            reader.fail_key(&section, given, format!("needs `{missing}` beside it"));
        }
        if let Some(label) = section.text("label") {
            curves.push(ReferenceCurve { label, x, y, low, high });
        }
    }
    curves
}

fn numbers(reader: &mut Reader, section: &Section<'_>, key: &str) -> Vec<f64> {
    let mut numbers = Vec::new();
    for item in reader.items(section, key).unwrap_or_default() {
        match item.content {
            Content::Scalar(Written::Integer(n)) => numbers.push(n as f64),
            Content::Scalar(Written::Float(x)) if x.is_finite() => numbers.push(x),
            _ => {
                reader.fail(&item.place, section.key_path(key), format!("{item} is not a number"));
            }
        }
    }
    numbers
}

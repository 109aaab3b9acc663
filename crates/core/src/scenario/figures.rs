//! `[[figures]]`: what is drawn.

use super::choices::{CdfOf, FigureKind, FlowRows, RecordDetail};
use super::claims::Scope;
use super::keys;
use super::model::{FLOW_VALUES, Figure, FigureCases, FigureContent, FlowGroup, ReferenceCurve, Scenario};
use super::sources::Reader;
use super::study::{SweepDraft, known_variants};
use crate::file::{Content, Section, suggestion};
use crate::params::Written;
use crate::report::metric::{self, Place, label};

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
        reader.fail_key(section, "at", "conflicts with `sweep`; a figure has one of them");
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
            reader.fail_key(&section, given, format!("also needs `{missing}`"));
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

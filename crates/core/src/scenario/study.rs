//! From a file's text to the cases to run: overrides, variants, sweeps.

use std::collections::{BTreeMap, BTreeSet};

use super::keys;
use super::model::{Axis, Case, Scenario, Study, Sweep, Variant};
use super::sources::{Reader, Sources};
use super::{ExtraSweep, Options, claims, figures, include, whole};
use crate::file::{
    Content, Entry, Error, Errors, Explained, Item, Layer, Place, Section, Source, Table, joined, list,
    read_file, read_word, split_path, suggestion,
};
use crate::params::Written;
use crate::units::{Dimension, parse_quantity};

/// The keys that describe the study, not one scenario.
const STUDY_KEYS: [&str; 5] = ["compare", "sweeps", "claims", "figures", "include"];

/// Reads a file. Where its values came from is found only when the caller `asks`.
///
/// # Errors
/// Everything that is wrong, as far as it can be seen at once: first the text, then the variants, then the rest.
pub(super) fn read(
    file: &str,
    text: &str,
    options: &Options,
    asks: bool,
) -> Result<(Study, Vec<Explained>), Errors> {
    let root = read_file(file, text).map_err(Errors::new)?;
    let sources = Sources::new(options);
    let mut reader = sources.reader(file);
    let mut root = include::resolve(&mut reader, root);
    if !reader.errors.is_empty() {
        return Err(Errors::new(reader.errors));
    }
    let mut changes = changes(&mut reader, options);
    for change in &mut changes {
        if change.path[0] == "include" {
            reader.errors.push(include::refuse_flag(&change.item.place));
            change.applied = true;
            continue;
        }
        change.apply(&mut reader, &mut root);
    }
    let top = sources.reader(file).section(&keys::FILE, &Layer::new("", &root));
    let variants = variants(&mut reader, &top);
    let common = without_study(&root);
    let bases: Vec<Item> =
        variants.iter().map(|variant| variant.apply(&mut reader, &common, &mut changes)).collect();
    for change in changes.iter().filter(|c| !c.applied) {
        let table = change.path[..2].join(".");
        let hint = format!("switch it on with --set {table}.enabled=true");
        reader.fail_with(&change.item.place, "", format!("no variant has [{table}]"), hint);
    }
    let sweeps = sweeps(&mut reader, &top, &variants, &bases, options);

    let quick_trials = options.quick && options.trials.is_none();
    let mut explained = Vec::new();
    let mut scenarios = Vec::new();
    let mut wrong = Vec::new();
    for (variant, base) in variants.iter().zip(&bases) {
        let mut of_variant = sources.reader(file);
        of_variant.explained = (asks && explained.is_empty()).then(Vec::new);
        scenarios.extend(whole::read(&mut of_variant, base, quick_trials));
        explained.extend(of_variant.explained.into_iter().flatten());
        wrong.push((variant.name.as_str(), of_variant.errors));
    }
    reader.errors.extend(merge(wrong));
    if !reader.errors.is_empty() || scenarios.len() != bases.len() {
        return Err(Errors::new(reader.errors));
    }

    let scope =
        claims::Scope { variants: &variants, sweeps: &sweeps, bases: &scenarios, quick: options.quick };
    let mut paper = claims::paper(&mut reader, &top, &scope);
    let claims = claims::claims(&mut reader, &top, &scope);
    let figures = figures::figures(&mut reader, &top, &scope);
    let cases = cases(&mut reader, (file, &sources), &variants, &bases, scenarios, &sweeps, quick_trials);
    if !reader.errors.is_empty() {
        return Err(Errors::new(reader.errors));
    }
    let name = top.text("name").unwrap_or_default();
    let study = Study {
        title: top.text("title").unwrap_or_else(|| name.clone()),
        name,
        description: top.text("description").unwrap_or_default(),
        variants: variants
            .iter()
            .map(|variant| Variant {
                name: variant.name.clone(),
                title: variant.title.clone(),
                paper: paper.remove(&variant.name).unwrap_or_default(),
            })
            .collect(),
        sweeps: sweeps.iter().map(SweepDraft::sweep).collect(),
        claims,
        figures,
        cases,
        quick: options.quick,
    };
    Ok((study, explained))
}

/// A value that a command-line option puts into the file.
struct Change {
    path: Vec<String>,
    item: Item,
    applied: bool,
}

impl Change {
    /// Puts the value in. A parameter of a scheme goes only where the file has that scheme: `--set
    /// schemes.bas.alpha=1` must not give BAS to a variant without it.
    fn apply(&mut self, reader: &mut Reader, root: &mut Item) {
        if is_scheme_parameter(&self.path) && root.find(&self.path[..2]).is_none() {
            return;
        }
        self.applied = true;
        if let Err((place, why)) = root.assign(&self.path, &self.item.place, &self.item) {
            reader.fail(&place, "", why);
        }
    }
}

fn is_scheme_parameter(path: &[String]) -> bool {
    path.len() > 2 && path[0] == "schemes" && path[2] != "enabled"
}

fn changes(reader: &mut Reader, options: &Options) -> Vec<Change> {
    let trials = options.trials.map(|n| ("run.trials", n.to_string(), format!("--trials {n}")));
    let seed = options.seed.map(|n| ("run.seed", n.to_string(), format!("--seed {n}")));
    let set = options
        .overrides
        .iter()
        .map(|o| (o.key.as_str(), o.value.clone(), format!("--set {}={}", o.key, o.value)));
    let mut changes = Vec::new();
    for (key, value, flag) in set.chain(trials).chain(seed) {
        let place = Place::flag(&flag);
        match (split_path(key), read_word(&value, &place)) {
            (Ok(path), Ok(item)) => changes.push(Change { path, item, applied: false }),
            (Err(why), _) => reader.fail(&place, "", why),
            (_, Err(errors)) => reader.errors.extend(errors),
        }
    }
    changes
}

/// A variant as written.
pub(super) struct VariantDraft {
    pub(super) name: String,
    title: String,
    path: String,
    set: Option<Item>,
}

impl VariantDraft {
    /// The file without the keys of the study, with the variant's values, those of the command line on top.
    fn apply(&self, reader: &mut Reader, common: &Item, changes: &mut [Change]) -> Item {
        let mut base = common.clone();
        if let Some(set) = &self.set {
            if let Err((place, why)) = base.assign(&[], &set.place, set) {
                reader.fail(&place, &joined(&self.path, "set"), why);
            }
            if let Some(key) =
                STUDY_KEYS.into_iter().find(|k| base.table().is_some_and(|t| t.get(k).is_some()))
            {
                let message = format!("changes `{key}`, which is common to all variants");
                reader.fail(&set.place, &joined(&self.path, "set"), message);
            }
        }
        for change in changes.iter_mut().filter(|c| !STUDY_KEYS.contains(&c.path[0].as_str())) {
            change.apply(reader, &mut base);
        }
        base
    }
}

/// The file without the keys of the study, which may be most of it.
fn without_study(root: &Item) -> Item {
    let content = match &root.content {
        Content::Table(table) => {
            let is_common = |entry: &&Entry| !STUDY_KEYS.contains(&entry.key.as_str());
            Content::Table(Table {
                entries: table.entries.iter().filter(is_common).cloned().collect(),
                is_dotted: false,
            })
        }
        other => other.clone(),
    };
    Item { content, place: root.place.clone() }
}

fn variants(reader: &mut Reader, top: &Section<'_>) -> Vec<VariantDraft> {
    let mut variants = Vec::new();
    let mut names = Vec::new();
    let mut known = BTreeSet::new();
    for layer in reader.tables(top, "compare") {
        let section = reader.section(&keys::VARIANT, &layer);
        names.extend(section.name_entry("name"));
        let Some(name) = reader.name(&section, "name") else { continue };
        if !known.insert(name.clone()) {
            continue;
        }
        let set = section.item("set").filter(|_| reader.table(&section, "set").table.is_some());
        variants.push(VariantDraft {
            title: section.text("title").unwrap_or_else(|| name.clone()),
            path: section.path.clone(),
            set: set.map(|set| set.by(&Source::Variant(name.as_str().into()))),
            name,
        });
    }
    reader.unique(&names);
    if variants.is_empty() {
        let name = "base".to_owned();
        variants.push(VariantDraft { title: name.clone(), name, path: String::new(), set: None });
    }
    variants
}

/// A sweep as written.
pub(super) struct SweepDraft {
    pub(super) name: String,
    title: String,
    /// One, or those of a grid.
    axes: Vec<AxisDraft>,
    pub(super) variants: Vec<String>,
}

/// A key of a sweep.
struct AxisDraft {
    name: String,
    title: String,
    key: String,
    path: Vec<String>,
    key_place: Place,
    key_path: String,
    /// Every value, and whether it is run now.
    values: Vec<(Item, bool)>,
}

/// One value per key of a sweep.
struct PointDraft<'a> {
    values: Vec<&'a Item>,
    run: bool,
}

/// What names no point of a sweep, why, and what to write.
pub(super) struct NoPoint<'a> {
    pub(super) item: &'a Item,
    pub(super) why: String,
    pub(super) hint: String,
}

/// The sweep of all `--key` with `--grid`.
pub(super) const GRID: &str = "grid";

/// Most points of a grid.
const GRID_POINTS: usize = 10_000;

impl SweepDraft {
    /// True of several keys.
    pub(super) fn is_grid(&self) -> bool {
        self.axes.len() > 1
    }

    /// All combinations of values; those of the last key follow each other.
    fn points(&self) -> Vec<PointDraft<'_>> {
        self.points_with(&vec![None; self.axes.len()])
    }

    /// Those of them in which keys have the values that are given.
    fn points_with(&self, given: &[Option<&Item>]) -> Vec<PointDraft<'_>> {
        let mut points = vec![PointDraft { values: Vec::new(), run: true }];
        for (axis, given) in self.axes.iter().zip(given) {
            let is_chosen = |item: &Item| given.is_none_or(|v| same_value(v, item));
            let chosen: Vec<_> = axis.values.iter().filter(|(item, _)| is_chosen(item)).collect();
            let mut extended = Vec::new();
            for point in &points {
                for (item, run) in &chosen {
                    let values = point.values.iter().copied().chain([item]).collect();
                    extended.push(PointDraft { values, run: point.run && *run });
                }
            }
            points = extended;
        }
        points
    }

    fn label(&self, point: &PointDraft<'_>) -> String {
        if !self.is_grid() {
            return point.values[0].label();
        }
        let named =
            self.axes.iter().zip(&point.values).map(|(axis, v)| format!("{}={}", axis.name, v.label()));
        named.collect::<Vec<_>>().join(", ")
    }

    /// The sweep's own texts of the points that `value` names, and whether each is run now. `whole`: of a grid, it
    /// must name every key.
    ///
    /// # Errors
    /// Which item is wrong, why, and what it may be.
    pub(super) fn named<'v>(&self, value: &'v Item, whole: bool) -> Result<Vec<(String, bool)>, NoPoint<'v>> {
        let mut given = vec![None; self.axes.len()];
        if self.is_grid() {
            let names: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
            let example = || {
                let pairs = self.axes.iter().map(|a| format!("{} = {}", a.name, a.values[0].0));
                format!("write {{ {} }}", pairs.collect::<Vec<_>>().join(", "))
            };
            let Some(table) = value.table() else {
                let message = format!("{value} is not a point of the grid `{}`", self.name);
                return Err(NoPoint { item: value, why: message, hint: example() });
            };
            for entry in &table.entries {
                let Some(place) = names.iter().position(|name| *name == entry.key) else {
                    let message = format!("the grid `{}` has no key `{}`", self.name, entry.key);
                    let hint = suggestion(&entry.key, &names);
                    return Err(NoPoint { item: &entry.item, why: message, hint });
                };
                given[place] = Some(&entry.item);
            }
            if let Some(missing) = given.iter().position(Option::is_none).filter(|_| whole) {
                let message = format!("names no value of `{}`, so it is not one point", names[missing]);
                return Err(NoPoint { item: value, why: message, hint: example() });
            }
        } else {
            given[0] = Some(value);
        }
        for (axis, item) in self.axes.iter().zip(&given) {
            let Some(item) = item.filter(|item| !axis.values.iter().any(|(v, _)| same_value(v, item))) else {
                continue;
            };
            let of =
                if self.is_grid() { format!("key `{}` of the grid", axis.name) } else { "sweep".to_owned() };
            let message = format!("{item} is not a value of the {of} `{}`", self.name);
            let labels: Vec<String> = axis.values.iter().map(|(item, _)| item.label()).collect();
            let hint = format!("it has {}", list(&labels));
            return Err(NoPoint { item, why: message, hint });
        }
        Ok(self.points_with(&given).iter().map(|point| (self.label(point), point.run)).collect())
    }

    /// Names of a grid's keys; none of a sweep of one key.
    pub(super) fn grid_names(&self) -> Vec<&str> {
        let is_grid = self.is_grid();
        self.axes.iter().filter(|_| is_grid).map(|axis| axis.name.as_str()).collect()
    }

    fn sweep(&self) -> Sweep {
        let axis = |axis: &AxisDraft| Axis {
            name: axis.name.clone(),
            title: axis.title.clone(),
            key: axis.key.clone(),
            values: axis.values.iter().filter(|(_, run)| *run).map(|(item, _)| item.label()).collect(),
        };
        let run = self.points();
        Sweep {
            name: self.name.clone(),
            title: self.title.clone(),
            key: self.axes.iter().map(|axis| axis.key.as_str()).collect::<Vec<_>>().join(", "),
            values: run.iter().filter(|point| point.run).map(|point| self.label(point)).collect(),
            grid: self.axes.iter().filter(|_| self.is_grid()).map(axis).collect(),
            variants: self.variants.clone(),
        }
    }
}

/// A value as which others may be written too.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    /// Bits of a number.
    Number(u64),
    /// Amount in base units of the dimension of that number.
    Quantity(usize, u64),
    Text(String),
}

/// What a value may mean; two are the same when they share one.
fn meanings(item: &Item) -> Vec<Meaning> {
    let number = match item.content {
        Content::Scalar(Written::Integer(n)) => Some(n as f64),
        Content::Scalar(Written::Float(x)) => Some(x),
        _ => None,
    };
    if let Some(number) = number {
        // 0 and -0 are one.
        return vec![Meaning::Number((number + 0.0).to_bits())];
    }
    let dimensions = [Dimension::Rate, Dimension::Span, Dimension::Bytes, Dimension::Packets];
    let quantity = |(place, dimension)| {
        let amount = parse_quantity(item.text()?, dimension).ok()?;
        Some(Meaning::Quantity(place, amount))
    };
    let quantities = dimensions.into_iter().enumerate().filter_map(quantity);
    std::iter::once(Meaning::Text(item.label())).chain(quantities).collect()
}

/// True when both are the same number, quantity or text.
fn same_value(a: &Item, b: &Item) -> bool {
    let of_a = meanings(a);
    meanings(b).iter().any(|meaning| of_a.contains(meaning))
}

fn sweeps(
    reader: &mut Reader,
    top: &Section<'_>,
    variants: &[VariantDraft],
    bases: &[Item],
    options: &Options,
) -> Vec<SweepDraft> {
    let mut sweeps = Vec::new();
    let mut names = Vec::new();
    for layer in reader.tables(top, "sweeps") {
        let section = reader.section(&keys::SWEEP, &layer);
        names.extend(section.name_entry("name"));
        sweeps.extend(sweep(reader, &section, variants, bases, options.quick, &mut names));
    }
    // Results have a column for each name, with the values of one key. A sweep of the file may have the name of a grid's key
    // when it is of the same key.
    let is_swept = |extra: &ExtraSweep| {
        sweeps.iter().any(|sweep: &SweepDraft| match sweep.axes.as_slice() {
            [axis] => sweep.name == extra.key && axis.key == extra.key,
            _ => false,
        })
    };
    for extra in &options.extra_sweeps {
        if !(options.grid && is_swept(extra)) {
            names.push((extra.key.clone(), place_of(extra), String::new()));
        }
    }
    let extras: Vec<AxisDraft> =
        options.extra_sweeps.iter().filter_map(|extra| extra_axis(reader, extra)).collect();
    let mut add = |reader: &mut Reader, name: String, axes: Vec<AxisDraft>| {
        let has_schemes = |base: &Item| {
            axes.iter().all(|a| !is_scheme_parameter(&a.path) || base.find(&a.path[..2]).is_some())
        };
        let swept = variants.iter().zip(bases).filter(|(_, base)| has_schemes(base));
        let swept: Vec<String> = swept.map(|(variant, _)| variant.name.clone()).collect();
        if swept.is_empty() {
            let of_schemes = axes.iter().filter(|axis| is_scheme_parameter(&axis.path));
            let tables: Vec<String> =
                of_schemes.map(|axis| format!("[{}]", axis.path[..2].join("."))).collect();
            reader.fail(&axes[0].key_place, "", format!("no variant has {}", tables.join(" and ")));
        }
        let title = axes.iter().map(|axis| axis.title.as_str()).collect::<Vec<_>>().join(", ");
        sweeps.push(SweepDraft { name, title, axes, variants: swept });
    };
    if options.grid {
        let place = Place::flag("--grid");
        names.push((GRID.to_owned(), place.clone(), String::new()));
        if options.extra_sweeps.len() < 2 {
            let hint = "give the keys of the grid, each with a --key of its own";
            reader.fail_with(&place, "", "joins the values of two or more --key", hint);
        }
        for (at, axis) in extras.iter().enumerate() {
            if let Some(other) = overlapping(&extras[..at], axis) {
                let message = format!("`{}` is changed by `{}` of this grid too", axis.key, other.name);
                reader.fail(&axis.key_place, "", message);
            }
        }
        if let Some(why) = too_many_points(&extras) {
            reader.fail(&place, "", why);
        } else if extras.len() > 1 {
            add(reader, GRID.to_owned(), extras);
        }
    } else {
        extras.into_iter().for_each(|axis| add(reader, axis.name.clone(), vec![axis]));
    }
    reader.unique(&names);
    sweeps
}

fn place_of(extra: &ExtraSweep) -> Place {
    Place::flag(&format!("--key {}={}", extra.key, extra.values.join(",")))
}

/// The key and values of the command line's `--key`.
fn extra_axis(reader: &mut Reader, extra: &ExtraSweep) -> Option<AxisDraft> {
    let place = place_of(extra);
    let path = match split_path(&extra.key) {
        Ok(path) => path,
        Err(why) => {
            reader.fail(&place, "", why);
            return None;
        }
    };
    let mut values = Vec::new();
    for word in &extra.values {
        match read_word(word, &place) {
            Ok(item) => values.push(item),
            Err(errors) => reader.errors.extend(errors),
        }
    }
    check_values(reader, &place, "", &values);
    Some(AxisDraft {
        name: extra.key.clone(),
        title: extra.key.clone(),
        key: extra.key.clone(),
        path,
        key_place: place,
        key_path: String::new(),
        values: values.into_iter().map(|item| (item, true)).collect(),
    })
}

fn sweep(
    reader: &mut Reader,
    section: &Section<'_>,
    variants: &[VariantDraft],
    bases: &[Item],
    quick: bool,
    names: &mut Vec<(String, Place, String)>,
) -> Option<SweepDraft> {
    let name = reader.name(section, "name");
    let names_of_variants: Vec<String> = variants.iter().map(|v| v.name.clone()).collect();
    let swept = known_variants(reader, section, "variants", &names_of_variants).unwrap_or(names_of_variants);
    let axes = if section.item("grid").is_some() {
        grid(reader, section, quick, names)?
    } else {
        for missing in ["key", "values"].into_iter().filter(|key| section.item(key).is_none()) {
            let hint = "write `key` and `values`, or a `grid` of several keys";
            reader.fail_with(&section.place, &joined(&section.path, missing), "is missing", hint);
        }
        vec![axis(reader, section, name.clone()?, quick)?]
    };
    for axis in axes.iter().filter(|axis| is_scheme_parameter(&axis.path)) {
        let scheme = &axis.path[..2];
        for (variant, base) in variants.iter().zip(bases) {
            if swept.contains(&variant.name) && base.find(scheme).is_none() {
                let message = format!("variant `{}` has no [{}]", variant.name, scheme.join("."));
                let hint = "name the variants to sweep in `variants`";
                reader.fail_with(&axis.key_place, &axis.key_path, message, hint);
            }
        }
    }
    let titles: Vec<&str> = axes.iter().map(|axis| axis.title.as_str()).collect();
    Some(SweepDraft {
        name: name?,
        title: section.text("title").unwrap_or_else(|| titles.join(", ")),
        axes,
        variants: swept,
    })
}

/// The keys of a grid.
fn grid(
    reader: &mut Reader,
    section: &Section<'_>,
    quick: bool,
    names: &mut Vec<(String, Place, String)>,
) -> Option<Vec<AxisDraft>> {
    for key in ["key", "values", "quick"] {
        if section.item(key).is_some() {
            let hint = "write it in the elements of `grid`";
            reader.fail_key_with(section, key, "conflicts with `grid`", hint);
        }
    }
    let layers = reader.tables(section, "grid");
    if layers.len() < 2 {
        let hint = "name a second key, or write `key` and `values` without `grid`";
        reader.fail_key_with(
            section,
            "grid",
            format!("has {} of the two or more keys of a grid", layers.len()),
            hint,
        );
        return None;
    }
    let mut axes: Vec<AxisDraft> = Vec::new();
    let mut sound = true;
    for layer in layers {
        let section = reader.section(&keys::AXIS, &layer);
        names.extend(section.name_entry("name"));
        let name = reader.name(&section, "name");
        let Some(axis) = name.and_then(|name| axis(reader, &section, name, quick)) else {
            sound = false;
            continue;
        };
        if let Some(other) = overlapping(&axes, &axis) {
            let message = format!("`{}` is changed by `{}` of this grid too", axis.key, other.name);
            reader.fail_key(&section, "key", message);
            sound = false;
        }
        axes.push(axis);
    }
    if let Some(why) = too_many_points(&axes) {
        reader.fail_key(section, "grid", why);
        return None;
    }
    sound.then_some(axes)
}

/// The key among `axes` that changes what `axis` changes.
fn overlapping<'a>(axes: &'a [AxisDraft], axis: &AxisDraft) -> Option<&'a AxisDraft> {
    axes.iter().find(|a| a.path.starts_with(&axis.path) || axis.path.starts_with(&a.path))
}

/// Why the grid of `axes` is too large, if it is.
fn too_many_points(axes: &[AxisDraft]) -> Option<String> {
    let points = axes.iter().map(|axis| axis.values.len()).fold(1_usize, usize::saturating_mul);
    (points > GRID_POINTS).then(|| format!("has {points} points, and a grid has at most {GRID_POINTS}"))
}

/// The key that `section` says, with its values.
fn axis(reader: &mut Reader, section: &Section<'_>, name: String, quick: bool) -> Option<AxisDraft> {
    let key = section.text("key")?;
    let path = match split_path(&key) {
        Ok(path) if STUDY_KEYS.contains(&path[0].as_str()) => {
            let message = format!("`{}` is common to all cases; a sweep cannot change it", path[0]);
            reader.fail_key(section, "key", message);
            return None;
        }
        Ok(path) => path,
        Err(why) => {
            reader.fail_key(section, "key", why);
            return None;
        }
    };
    let values = reader.items(section, "values")?;
    check_values(reader, section.place("values"), section.key_path("values"), values);
    let quick_values = reader.items(section, "quick");
    if let Some(listed) = quick_values {
        check_values(reader, section.place("quick"), section.key_path("quick"), listed);
        for wrong in listed.iter().filter(|item| !values.iter().any(|v| same_value(v, item))) {
            reader.fail(&wrong.place, section.key_path("quick"), format!("{wrong} is not one of `values`"));
        }
    }
    if values.is_empty() {
        return None;
    }
    let run =
        |item: &Item| !quick || quick_values.is_none_or(|list| list.iter().any(|q| same_value(q, item)));
    Some(AxisDraft {
        name,
        title: section.text("title").unwrap_or_else(|| key.clone()),
        key,
        path,
        key_place: section.place("key").clone(),
        key_path: section.key_path("key").to_owned(),
        values: values.iter().map(|item| (item.clone(), run(item))).collect(),
    })
}

fn check_values(reader: &mut Reader, place: &Place, path: &str, values: &[Item]) {
    if values.is_empty() {
        reader.fail(place, path, "is an empty list");
    }
    let mut before = BTreeSet::new();
    for item in values {
        let known = before.len();
        let meanings = meanings(item);
        let all = known + meanings.len();
        before.extend(meanings);
        if before.len() < all {
            reader.fail(&item.place, path, format!("{item} occurs twice"));
        }
    }
}

/// The names at `key`, each of them that of a variant; `None` when the key is absent.
pub(super) fn known_variants(
    reader: &mut Reader,
    section: &Section<'_>,
    key: &str,
    names: &[String],
) -> Option<Vec<String>> {
    let listed = section.list(key)?;
    let known: BTreeSet<&String> = names.iter().collect();
    for name in listed.iter().filter(|n| !known.contains(n)) {
        reader.fail_key_with(section, key, format!("unknown variant `{name}`"), suggestion(name, names));
    }
    Some(listed)
}

/// The errors of all variants; one that is not in all of them names its variants.
fn merge(wrong: Vec<(&str, Vec<Error>)>) -> Vec<Error> {
    let all = wrong.len();
    let told =
        wrong.into_iter().flat_map(|(name, errors)| errors.into_iter().map(move |error| (name, error)));
    let told: Vec<(&str, Error)> = told.collect();
    let mut names = vec![Vec::new(); told.len()];
    let mut first = BTreeMap::new();
    for (at, (name, error)) in told.iter().enumerate() {
        let names: &mut Vec<&str> = &mut names[*first.entry(error.said()).or_insert(at)];
        if names.last() != Some(name) {
            names.push(name);
        }
    }
    drop(first);
    let named = |(mut error, names): (Error, Vec<&str>)| {
        if names.len() < all && error.case.is_none() {
            let word = if names.len() == 1 { "variant" } else { "variants" };
            let quoted: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
            error.case = Some(format!("{word} {}", quoted.join(", ")));
        }
        error
    };
    let merged = told.into_iter().zip(names).filter(|(_, names)| !names.is_empty());
    merged.map(|((_, error), names)| named((error, names))).collect()
}

/// The scenarios to run; equal ones of a variant are one case.
fn cases(
    reader: &mut Reader<'_>,
    (file, sources): (&str, &Sources<'_>),
    variants: &[VariantDraft],
    bases: &[Item],
    scenarios: Vec<Scenario>,
    sweeps: &[SweepDraft],
    quick_trials: bool,
) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for ((variant, base), scenario) in variants.iter().zip(bases).zip(scenarios) {
        let first = cases.len();
        cases.push(Case { variant: variant.name.clone(), points: Vec::new(), base: true, scenario });
        for sweep in sweeps.iter().filter(|s| s.variants.contains(&variant.name)) {
            for of_sweep in sweep.points().iter().filter(|point| point.run) {
                let label = sweep.label(of_sweep);
                let mut point = format!("sweep `{}` at {label}", sweep.name);
                if variants.len() > 1 {
                    point = format!("variant `{}`, {point}", variant.name);
                }
                let mut raw = base.clone();
                let mut assigned = true;
                for (axis, value) in sweep.axes.iter().zip(&of_sweep.values) {
                    let source = match &value.place.source {
                        Source::Flag(flag) => Source::Flag(flag.clone()),
                        Source::File | Source::Include(_) | Source::Variant(_) | Source::Sweep(_) => {
                            Source::Sweep(point.as_str().into())
                        }
                    };
                    let key_place = axis.key_place.by(&source);
                    if let Err((place, why)) = raw.assign(&axis.path, &key_place, &value.by(&source)) {
                        reader.fail(&place, &axis.key_path, why);
                        assigned = false;
                    }
                }
                if !assigned {
                    continue;
                }
                let mut of_case = sources.reader(file);
                let scenario = whole::read(&mut of_case, &raw, quick_trials);
                reader
                    .errors
                    .extend(of_case.errors.into_iter().map(|e| Error { case: Some(point.clone()), ..e }));
                let Some(scenario) = scenario else { continue };
                let swept = (sweep.name.clone(), label);
                match cases[first..].iter_mut().find(|c| c.scenario == scenario) {
                    Some(case) => case.points.push(swept),
                    None => cases.push(Case {
                        variant: variant.name.clone(),
                        points: vec![swept],
                        base: false,
                        scenario,
                    }),
                }
            }
        }
    }
    cases
}

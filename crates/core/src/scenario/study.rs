//! From a file's text to the cases to run: overrides, variants, sweeps.

use std::rc::Rc;

use super::error::{Error, Errors};
use super::keys;
use super::model::{Case, Scenario, Study, Sweep, Variant};
use super::raw::{self, Content, Item, Place, Source, Table, split_path};
use super::section::{Explained, Layer, Reader, Section};
use super::{Options, claims, whole, words};
use crate::params::Written;
use crate::units::{Dimension, parse_quantity};

/// The keys that describe the study, not one scenario.
const STUDY_KEYS: [&str; 4] = ["compare", "sweeps", "claims", "figures"];

/// Reads a file.
///
/// # Errors
/// Everything that is wrong, as far as it can be seen at once: the text, then the variants, then the sweeps.
pub(super) fn read(file: &str, text: &str, options: &Options) -> Result<(Study, Vec<Explained>), Errors> {
    let stop = |errors: Vec<Error>| match Errors::new(errors) {
        Some(errors) => Err(errors),
        None => Ok(()),
    };
    let mut root = match raw::read_file(file, text) {
        Ok(root) => root,
        Err(errors) => {
            stop(errors)?;
            return Ok(Default::default());
        }
    };
    let mut reader = Reader::new(file);
    let mut changes = changes(&mut reader, options);
    for change in &mut changes {
        change.apply(&mut reader, &mut root);
    }
    let quiet = reader.errors.len();
    let top = reader.section(&keys::FILE, &Layer::new("", &root));
    // The same keys are read again in every case; only what those readings cannot say is kept here.
    reader.errors.truncate(quiet);
    let variants = variants(&mut reader, &top, &root);
    let sweeps = sweeps(&mut reader, &top, &variants, options);

    let mut bases = Vec::new();
    for variant in &variants {
        let mut base = root.clone();
        if let Content::Table(table) = &mut base.content {
            table.entries.retain(|e| !STUDY_KEYS.contains(&e.key.as_str()));
        }
        if let Some(set) = &variant.set
            && let Err(why) = base.assign(&[], &set.place, set)
        {
            reader.fail(&set.place, &variant.path, why);
        }
        for change in &mut changes {
            change.apply(&mut Reader::new(file), &mut base);
        }
        bases.push(base);
    }
    for change in changes.iter().filter(|c| !c.applied) {
        let table = change.path[..2].join(".");
        let hint = format!("switch it on with --set {table}.enabled=true");
        reader.fail_with(&change.item.place, "", format!("no variant has [{table}]"), hint);
    }

    let mut explained = Vec::new();
    let mut scenarios = Vec::new();
    let mut wrong = Vec::new();
    for (variant, base) in variants.iter().zip(&bases) {
        let mut of_variant = Reader::new(file);
        scenarios.push(whole::read(&mut of_variant, base, options.quick && options.trials.is_none()));
        if explained.is_empty() {
            explained = of_variant.explained;
        }
        wrong.push((variant.name.as_str(), of_variant.errors));
    }
    reader.errors.extend(merge(wrong));
    if let Some(scenarios) = scenarios.iter().cloned().collect::<Option<Vec<_>>>()
        && reader.errors.is_empty()
    {
        let cases = cases(&mut reader, &variants, &bases, scenarios, &sweeps, options.quick);
        let bases: Vec<&Scenario> = cases.iter().filter(|c| c.base).map(|c| &c.scenario).collect();
        let scope = claims::Scope { variants: &variants, sweeps: &sweeps, bases: &bases, quick: options.quick };
        let claims = claims::claims(&mut reader, &top, &scope);
        let figures = claims::figures(&mut reader, &top, &scope);
        stop(core::mem::take(&mut reader.errors))?;
        let name = top.text("name").unwrap_or_default();
        let study = Study {
            title: top.text("title").unwrap_or_else(|| name.clone()),
            name,
            description: top.text("description").unwrap_or_default(),
            variants: variants.iter().map(VariantDraft::variant).collect(),
            sweeps: sweeps.iter().map(|s| s.sweep(options.quick)).collect(),
            claims,
            figures,
            cases,
        };
        return Ok((study, explained));
    }
    stop(reader.errors)?;
    Ok(Default::default())
}

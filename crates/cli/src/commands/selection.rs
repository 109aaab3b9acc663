//! Which cases of a study are run.

use std::collections::BTreeSet;

use bandmaster_core::scenario::{Case, ClaimAt, Options, Study};
use clap::Args;

use crate::exit::Failure;

/// Only some cases of the file.
#[derive(Args, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Selection {
    /// Only this variant; may be given again
    #[arg(long = "variant", value_name = "NAME")]
    pub(crate) variants: Vec<String>,
    /// No sweeps of the file: only every variant's base point, and what --key gives
    #[arg(long)]
    pub(crate) base: bool,
}

impl Selection {
    /// Leaves out the cases that nobody asked for, and the claims and figures about them. Gives how many claims it left out.
    ///
    /// # Errors
    /// When the study has no such variant.
    pub(crate) fn apply(&self, study: &mut Study, options: &Options<'_>) -> Result<usize, Failure> {
        if *self == Self::default() {
            return Ok(0);
        }
        let known: Vec<&str> = study.variants.iter().map(|variant| variant.name.as_str()).collect();
        if let Some(wrong) = self.variants.iter().find(|name| !known.contains(&name.as_str())) {
            let allowed = known.join(", ");
            return Err(Failure::usage(format!("no variant `{wrong}`; allowed: {allowed}")));
        }
        let extra = options.names_of_extra_sweeps();
        let is_extra = |case: &Case| case.points.iter().any(|(sweep, _)| extra.contains(&sweep.as_str()));
        study.cases.retain(|case| {
            (self.variants.is_empty() || self.variants.contains(&case.variant))
                && (!self.base || case.base || is_extra(case))
        });
        if self.base {
            // A case of --key may be one of a sweep of the file too.
            for case in study.cases.iter_mut().filter(|case| !case.base) {
                case.points.retain(|(sweep, _)| extra.contains(&sweep.as_str()));
            }
        }
        let claims = study.claims.len();
        keep_what_is_there(study);
        Ok(claims - study.claims.len())
    }

    /// As a command line gives it.
    pub(crate) fn as_written(&self) -> Vec<String> {
        let variants = self.variants.iter().flat_map(|name| ["--variant".to_owned(), name.clone()]);
        variants.chain(self.base.then(|| "--base".to_owned())).collect()
    }
}

/// Keeps variants, claims and figures whose cases are there.
pub(crate) fn keep_what_is_there(study: &mut Study) {
    let cases = std::mem::take(&mut study.cases);
    let has = |name: &str| cases.iter().any(|case| case.variant == name);
    let swept: BTreeSet<&str> = cases
        .iter()
        .filter(|case| !case.base)
        .flat_map(|case| &case.points)
        .map(|(s, _)| s.as_str())
        .collect();
    study.variants.retain(|variant| has(&variant.name));
    study.sweeps.retain(|sweep| swept.contains(sweep.name.as_str()));
    let kept: BTreeSet<String> = study.sweeps.iter().map(|sweep| sweep.name.clone()).collect();
    for sweep in &mut study.sweeps {
        sweep.variants.retain(|name| has(name));
    }
    study.claims.retain(|claim| {
        let against = claim.against.as_ref();
        let other = against.and_then(|against| against.variant.as_deref());
        let point = against.and_then(|against| against.point.as_ref());
        has(&claim.variant)
            && other.is_none_or(has)
            && sweep_of(&claim.at).is_none_or(|sweep| kept.contains(sweep))
            && point.is_none_or(|(sweep, _)| kept.contains(sweep))
    });
    for figure in &mut study.figures {
        figure.variants.retain(|name| has(name));
    }
    study.figures.retain(|figure| {
        !figure.variants.is_empty() && figure.content.sweep().is_none_or(|sweep| kept.contains(sweep))
    });
    study.cases = cases;
}

fn sweep_of(at: &ClaimAt) -> Option<&str> {
    match at {
        ClaimAt::Base => None,
        ClaimAt::Point(sweep, _) | ClaimAt::Every(sweep) | ClaimAt::Points(sweep, _) => Some(sweep),
    }
}

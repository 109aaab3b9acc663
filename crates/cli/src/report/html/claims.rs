//! Claims, folded by the figure that shows what they judge.

use bandmaster_core::report::claims::{Status, band};
use bandmaster_core::report::metric;
use bandmaster_core::scenario::{Claim, ClaimAt, Figure, FigureContent, Study};
use maud::{Markup, html};

use crate::report::figure::DrawnFigure;
use crate::report::number::{self, more};
use crate::report::{ReportClaim, ReportSummary};

/// Failed claims that the head of the page names; it counts the others.
const NAMED_FAILURES: usize = 8;

/// The claims that share a fold.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// Number of the figure that shows what they judge.
    pub(super) figure: Option<usize>,
    /// Title of the figure, or where the claims come from.
    title: String,
    /// Id of the table in the page, which no figure can have.
    anchor: String,
    claims: Vec<&'a ReportClaim>,
}

/// The groups of a study: those of its figures first, in their order, then by source. `begun` groups came before.
pub(super) fn groups<'a>(
    study: &Study,
    judged: &[&'a ReportClaim],
    figures: &[(usize, &DrawnFigure<'_>)],
    begun: usize,
) -> Vec<Group<'a>> {
    let mut of_figures: Vec<Vec<&ReportClaim>> = vec![Vec::new(); figures.len()];
    let mut of_sources: Vec<(&str, Vec<&ReportClaim>)> = Vec::new();
    for (claim, &result) in study.claims.iter().zip(judged) {
        let mut best = None;
        for (place, (_, drawn)) in figures.iter().enumerate() {
            let found = affinity(drawn.figure, claim);
            if found.is_some() && best.is_none_or(|(most, _)| found > most) {
                best = Some((found, place));
            }
        }
        if let Some((_, place)) = best {
            of_figures[place].push(result);
            continue;
        }
        match of_sources.iter_mut().find(|(source, _)| *source == claim.source) {
            Some((_, claims)) => claims.push(result),
            None => of_sources.push((claim.source.as_str(), vec![result])),
        }
    }
    let of_figures = figures.iter().zip(of_figures).map(|((number, drawn), claims)| {
        let source = &drawn.figure.source;
        let source = if source.is_empty() { String::new() } else { format!(" ({source})") };
        (Some(*number), format!("Figure {number}. {}{source}", drawn.figure.title), claims)
    });
    let of_sources = of_sources.into_iter().map(|(source, claims)| (None, capitalised(source), claims));
    let all = of_figures.chain(of_sources).filter(|(.., claims)| !claims.is_empty());
    all.zip(begun + 1..)
        .map(|((figure, title, claims), number)| {
            let title = if title.is_empty() { "Claims without a figure".to_owned() } else { title };
            Group { figure, title, anchor: format!("claims:{number}"), claims }
        })
        .collect()
}

/// How closely a figure belongs to a claim: the same figure of the paper, the metric, the sweep. None: it does not.
fn affinity(figure: &Figure, claim: &Claim) -> Option<(bool, bool, bool)> {
    let source = is_same_source(&figure.source, &claim.source);
    let metric = draws(&figure.content, &claim.metric) && figure.variants.contains(&claim.variant);
    let sweep = match &claim.at {
        ClaimAt::Base => None,
        ClaimAt::Every(name) | ClaimAt::Points(name, _) | ClaimAt::Point(name, _) => Some(name.as_str()),
    };
    let is_swept = sweep.is_some() && sweep == figure.content.sweep();
    (source || metric && (sweep.is_none() || is_swept)).then_some((source, metric, is_swept))
}

/// Whether both name the same figure or table of a paper; `Fig. 9` is that of `Fig. 9(b)` too.
fn is_same_source(figure: &str, claim: &str) -> bool {
    fn pictures(source: &str) -> impl Iterator<Item = &str> {
        source.split(", ").filter(|part| part.starts_with("Fig") || part.starts_with("Table"))
    }
    let is_part = |part: &str, whole: &str| {
        part.strip_prefix(whole).is_some_and(|rest| rest.trim_start().starts_with('('))
    };
    let is_same = |a: &str, b: &str| a == b || is_part(a, b) || is_part(b, a);
    !figure.is_empty() && figure == claim || pictures(figure).any(|a| pictures(claim).any(|b| is_same(a, b)))
}

/// Whether a figure draws a metric: in whatever window or group, or at whatever node.
fn draws(content: &FigureContent, metric: &str) -> bool {
    let wanted = bare(metric);
    let is_it = |name: &String| bare(name) == wanted;
    match content {
        FigureContent::Sweep { y, .. }
        | FigureContent::Box { y, .. }
        | FigureContent::Heatmap { z: y, .. } => is_it(y),
        FigureContent::Series { y, .. } => y.iter().any(is_it),
        FigureContent::Bars { metrics, .. } => metrics.iter().any(is_it),
        // A quantile of what is distributed.
        FigureContent::Distribution { x, .. } | FigureContent::Cdf { x, .. } => {
            is_it(x) || wanted.strip_prefix(x.as_str()).is_some_and(|rest| rest.starts_with('_'))
        }
        FigureContent::Slowdown { .. } => wanted.starts_with("slowdown"),
    }
}

/// A metric without its window, group or node; of a gauge, the gauge.
fn bare(name: &str) -> &str {
    match metric::of_gauge(name) {
        Some((_, gauge, _)) => gauge.name,
        None => name.rsplit('.').next().unwrap_or(name),
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The outcome, which the page begins with.
pub(super) fn verdict(summary: &ReportSummary, groups: &[Vec<Group<'_>>]) -> Markup {
    let trials = summary.trials;
    let of = if summary.claims.len() == 1 { " claim holds" } else { " claims hold" };
    let failed: Vec<(&Group<'_>, &ReportClaim)> = groups
        .iter()
        .flatten()
        .flat_map(|group| group.claims.iter().map(move |claim| (group, *claim)))
        .filter(|(_, claim)| is_failure(claim))
        .collect();
    html! {
        p.verdict {
            @if !summary.complete {
                span.bad { "Not complete: " (trials.finished) " of " (trials.planned) " trials finished." } " "
            }
            @if !summary.claims.is_empty() {
                (counts(&summary.claims.iter().collect::<Vec<_>>(), of)) "."
            }
        }
        @if !failed.is_empty() {
            ul.failures {
                @for (group, claim) in failed.iter().take(NAMED_FAILURES) {
                    li {
                        span.bad { (claim.result.status.word()) } " "
                        a href={ "#" (group.anchor) } { (claim.result.text) }
                    }
                }
                @if let Some(more) = failed.len().checked_sub(NAMED_FAILURES).filter(|more| *more > 0) {
                    li { a href="#section:claims" { "and " (more) " more" } }
                }
            }
        }
    }
}

/// Whatever the number of trials.
fn is_failure(claim: &ReportClaim) -> bool {
    claim.result.status.is_failure(true)
}

/// How many hold, then how many have each other outcome: `3 of 5 hold, 1 fails, 1 undecided`.
fn counts(claims: &[&ReportClaim], hold: &str) -> Markup {
    let count = |status: Status| claims.iter().filter(|claim| claim.result.status == status).count();
    let holding = count(Status::Holds);
    let verb = |n: usize, one: &'static str, many: &'static str| if n == 1 { one } else { many };
    let others = [
        (Status::Fails, "bad", [" fails", " fail"]),
        (Status::ReproducedAfterAll, "bad", [" reproduced after all"; 2]),
        (Status::Missing, "bad", [" lacks data", " lack data"]),
        (Status::Undecided, "open", [" undecided"; 2]),
        (Status::NotReproduced, "open", [" not reproduced"; 2]),
    ];
    html! {
        span class=[(holding == claims.len()).then_some("good")] { (holding) " of " (claims.len()) (hold) }
        @for (n, class, [one, many]) in others.map(|(status, class, words)| (count(status), class, words)) {
            @if n > 0 { ", " span class=(class) { (n) (verb(n, one, many)) } }
        }
    }
}

/// Below a figure: how its claims came out, and the way there.
pub(super) fn of_figure(group: &Group<'_>) -> Markup {
    html! {
        p.fine {
            a href={ "#" (group.anchor) } { @if group.claims.len() == 1 { "Claim" } @else { "Claims" } }
            ": " (counts(&group.claims, " hold")) "."
        }
    }
}

/// How to read a table of claims.
pub(super) fn legend() -> Markup {
    html! {
        p.fine {
            "Each value is computed from means over trials. Below it stand its 95 % confidence interval and the point \
             that decides. A claim holds if the whole interval lies in its band, and fails if no part of it does."
        }
    }
}

/// A fold. It is open when a claim in it fails.
pub(super) fn folded(group: &Group<'_>) -> Markup {
    html! {
        details.claims open[group.claims.iter().any(|claim| is_failure(claim))] {
            summary { (group.title) ": " (counts(&group.claims, " hold")) }
            div id=(group.anchor) { (table(&group.claims)) }
        }
    }
}

fn table(claims: &[&ReportClaim]) -> Markup {
    let published = claims.iter().any(|c| !c.result.paper.is_empty() || !c.result.source.is_empty());
    html! {
        table.claims {
            thead { tr {
                th scope="col" { "Outcome" } th scope="col" { "Claim" } th scope="col" { "Value" } th scope="col" { "Band" }
                @if published { th scope="col" { "Published" } }
            } }
            tbody { @for claim in claims { (row(claim, published)) } }
        }
    }
}

fn row(claim: &ReportClaim, published: bool) -> Markup {
    let result = &claim.result;
    let class = match result.status {
        Status::Holds => "good",
        Status::Fails | Status::Missing | Status::ReproducedAfterAll => "bad",
        Status::Undecided | Status::NotReproduced => "open",
    };
    html! {
        tr {
            td class=(class) { (result.status.word()) }
            td {
                (result.text)
                div.fine {
                    code { (result.id) } " · " (result.computed)
                    @for why in [more(result)].into_iter().chain(result.not_reproduced.clone()) {
                        @if !why.is_empty() { br; (why) }
                    }
                }
            }
            td data-head="Value" {
                @match result.value {
                    Some(value) => { (number::claim_value(value, result.low, result.high)) " " (result.unit) }
                    None => "–",
                }
                @if let Some(interval) = number::interval(result) { div.fine { (interval) } }
                div.fine { (result.at) }
            }
            td data-head="Band" {
                (band(result.low, result.high))
                @if !result.because.is_empty() { div.fine { (result.because) } }
            }
            @if published {
                td data-head="Published" {
                    (result.paper)
                    @if !result.source.is_empty() { div.fine { (result.source) } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::draw_all;
    use crate::report::tests::{results, study};

    #[test]
    fn sources_name_the_same_picture() {
        for (figure, claim) in [
            ("Fig. 6", "Fig. 6, Sect. 5.1"),
            ("Fig. 9", "Fig. 9(b), Sect. 5.1"),
            ("Fig. 14(a)", "Fig. 14"),
            ("Fig. 6, normalised", "Fig. 6"),
            ("Fig. 13", "Sect. 4.3, Fig. 13"),
            ("RFC 9438, Table 1", "RFC 9438, Table 1"),
            ("Sect. 2", "Sect. 2"),
        ] {
            assert!(is_same_source(figure, claim), "{figure} {claim}");
        }
        for (figure, claim) in [
            ("Fig. 1", "Fig. 12"),
            ("Fig. 11(a)", "Fig. 11(b)"),
            ("", ""),
            ("Sect. 3, Methodology", "Sect. 3"),
        ] {
            assert!(!is_same_source(figure, claim), "{figure} {claim}");
        }
    }

    #[test]
    fn metrics_are_those_of_the_figure_in_any_window_or_node() {
        let sweep =
            |y: &str| FigureContent::Sweep { sweep: "n".to_owned(), y: y.to_owned(), x: None, log_x: false };
        assert!(draws(&sweep("throughput"), "late.throughput"));
        assert!(draws(&sweep("gw1.lost.last"), "gw2.lost.max"));
        assert!(!draws(&sweep("jain"), "jain_long"));
        let distribution = FigureContent::Distribution { x: "fct".to_owned(), log_x: true };
        assert!(draws(&distribution, "fct_p99") && !draws(&distribution, "rtos"));
    }

    /// Of the claims, whose figure is Fig. 6 like that of every figure, the metric decides; one that nothing draws goes by
    /// its source.
    #[test]
    fn every_claim_is_in_one_group() {
        let mut study = study();
        study.claims[3].source = "beyond the paper".to_owned();
        study.claims[4].source = String::new();
        study.claims[5].at = ClaimAt::Every("other".to_owned());
        study.claims[5].source = String::new();
        let results = [results(&study)];
        let summary = ReportSummary::new("Title", &results);
        let drawn = draw_all(&results, None).unwrap();
        let figures: Vec<(usize, &DrawnFigure<'_>)> = (1..).zip(&drawn).collect();
        let judged: Vec<&ReportClaim> = summary.claims.iter().collect();
        let groups = groups(&study, &judged, &figures, 7);
        let found: Vec<(&str, &str, usize)> =
            groups.iter().map(|g| (g.title.as_str(), g.anchor.as_str(), g.claims.len())).collect();
        assert_eq!(
            found,
            [
                ("Figure 1. Fairness against the number of clients (Fig. 6)", "claims:8", 4),
                ("Beyond the paper", "claims:9", 1),
                ("Claims without a figure", "claims:10", 1)
            ]
        );
        let summaries: Vec<String> = groups
            .iter()
            .map(|group| folded(group).into_string().split("</summary>").next().unwrap().to_owned())
            .collect();
        assert_eq!(
            summaries[0],
            "<details class=\"claims\" open><summary>Figure 1. Fairness against the number of clients (Fig. 6): \
             <span>1 of 4 hold</span>, <span class=\"bad\">1 fails</span>, <span class=\"open\">1 undecided</span>, \
             <span class=\"open\">1 not reproduced</span>"
        );
        assert!(
            summaries[1].contains(" open><summary>")
                && summaries[1].ends_with("<span class=\"bad\">1 lacks data</span>")
        );
    }
}

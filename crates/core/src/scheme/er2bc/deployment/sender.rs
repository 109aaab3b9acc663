//! Reads what a sender does: `[control]` and `[[classes]]`.

use super::keys::{CLASS, CONTROL, MATCH};
use super::rule::rule;
use super::{Class, Sender, needs};
use crate::file::{Reader, Section};
use crate::params::Value;
use crate::scheme::er2bc::{self, shares};
use crate::time::Span;
use crate::units::Rate;

/// The sum of the needs may be so many times the ceiling: order of priority is for more than there is, but not for that.
const MOST_TIMES: u64 = 10;
/// Shortest silence that is not an ordinary loss.
const FEWEST_CYCLES: u64 = 3;
/// Classes of a gateway.
pub(super) const MOST_CLASSES: usize = 64;

pub(super) fn sender(reader: &mut Reader, file: &Section<'_>) -> Option<Sender> {
    for key in ["control", "classes"] {
        if file.item(key).is_none() {
            let hint = if key == "control" { "write [control]" } else { "write [[classes]]" };
            reader.fail_with(&file.place, key, "is missing", hint);
        }
    }
    file.item("control")?;
    file.item("classes")?;
    let layer = reader.table(file, "control");
    let control = reader.section(&CONTROL, &layer);
    let unclassified = control.float("unclassified");
    let (safe_rate, hold, cycle) = (control.rate("safe-rate"), control.span("hold"), control.span("cycle"));
    if cycle.is_some_and(|cycle| cycle < Span::from_millis(10)) {
        reader.fail_key(&control, "cycle", "must be at least 10ms");
    }
    if let (Some(hold), Some(cycle)) = (hold, cycle)
        && hold < cycle * FEWEST_CYCLES
    {
        let what =
            format!("{hold} is shorter than {FEWEST_CYCLES} cycles of {cycle}: a lost probe is no silence");
        reader.fail_key(&control, "hold", what);
    }
    if let (Some(safe), Some(ceiling)) = (safe_rate, control.rate("ceiling"))
        && safe > ceiling
    {
        reader.fail_key(&control, "safe-rate", format!("{safe} is above the ceiling of {ceiling}"));
    }
    for key in ["safe-rate", "initial", "ceiling"] {
        if control.rate(key) == Some(Rate::ZERO) {
            reader.fail_key(&control, key, "must be more than nothing");
        }
    }
    let classes = classes(reader, file, control.rate("ceiling"));
    if let (Some(initial), Some(ceiling)) = (control.rate("initial"), control.rate("ceiling"))
        && initial > ceiling
    {
        reader.fail_key(&control, "initial", format!("{initial} is above the ceiling of {ceiling}"));
    }
    let mut params = control.params(er2bc::CONTROL_KEYS)?;
    if let Err((key, what)) = er2bc::check_constants(&params) {
        reader.fail_key(&control, key, what);
    }
    let redundant = |(_, class): &(u32, &Class)| !class.flow.retransmits;
    let redundant = (1..).zip(&classes).filter(redundant).map(|(place, _)| place.to_string()).collect();
    params.set("needs", needs(&classes));
    params.set("retransmission", Value::Bool(true));
    params.set("redundant", Value::List(redundant));
    params.set("safe-rate", Value::Rate(safe_rate?));
    params.set("hold", Value::Span(hold?));
    Some(Sender { params, classes, safe_rate: safe_rate?, hold: hold?, unclassified: unclassified? })
}

/// Packets of 1500 bytes that a class of this need keeps within 100 ms: a round trip that many paths have. A queue stands for longer
/// when the path's bandwidth falls, so it is no longer than TCP needs; 20 packets hold a first window and what follows it.
fn short_queue(need: Rate) -> u32 {
    const BITS: u64 = 10 * 1500 * 8;
    let packets = need.bits_per_sec().div_ceil(BITS).clamp(20, 100_000);
    u32::try_from(packets).unwrap_or(u32::MAX)
}

fn classes(reader: &mut Reader, file: &Section<'_>, ceiling: Option<Rate>) -> Vec<Class> {
    let layers = reader.tables(file, "classes");
    if layers.is_empty() || layers.len() > MOST_CLASSES {
        let what = format!("has {} classes; write 1 to {MOST_CLASSES}", layers.len());
        reader.fail_key(file, "classes", what);
    }
    let sections: Vec<Section<'_>> = layers.iter().map(|layer| reader.section(&CLASS, layer)).collect();
    let names: Vec<_> = sections.iter().filter_map(|section| section.name_entry("name")).collect();
    reader.unique(&names);
    let last = sections.iter().filter_map(|section| section.integer("priority")).max();
    let mut classes: Vec<Class> = Vec::new();
    let mut sum = 0u64;
    for section in &sections {
        let name = reader.name(section, "name");
        let mut matches = Vec::new();
        for layer in reader.tables(section, "match") {
            let rule_section = reader.section(&MATCH, &layer);
            matches.extend(rule(reader, &rule_section));
        }
        let priority = section.integer("priority");
        if section.item("match").is_none() && priority != last {
            let what = "has no match, so that it takes every packet: only the class of the last priority may";
            reader.fail(&section.place, &section.path, what);
        }
        let need = section.rate("need");
        if need == Some(Rate::ZERO) {
            reader.fail_key(section, "need", "must be more than nothing");
        }
        if let (Some(priority), Some(taken)) =
            (priority, classes.iter().find(|class| Some(i64::from(class.priority)) == priority))
        {
            let what = format!("{priority} is the priority of class `{}`", taken.name);
            reader.fail_key(section, "priority", what);
        }
        let queue = section.integer("queue").and_then(|n| u32::try_from(n).ok());
        if section.integer("queue").is_some() && queue.is_none_or(|n| n == 0) {
            reader.fail_key(section, "queue", "must be from 1pkt to 4294967295pkt");
        }
        let (Some(name), Some(priority), Some(need), Some(retransmits)) =
            (name, priority, need, section.bool("retransmission"))
        else {
            continue;
        };
        let flows = section.integer("flows").and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
        let all = need.bits_per_sec().saturating_mul(u64::from(flows));
        let queue = queue.unwrap_or_else(|| short_queue(Rate::from_bits_per_sec(all)));
        sum = sum.saturating_add(all);
        if let Some(ceiling) = ceiling {
            let said = |bits| Rate::from_bits_per_sec(bits);
            if all > ceiling.bits_per_sec() {
                let what = format!(
                    "{} is above the ceiling of {ceiling}: it would never be met",
                    if flows == 1 {
                        need.to_string()
                    } else {
                        format!("{need} for each of {flows} flows, {},", said(all))
                    }
                );
                reader.fail_key(section, "need", what);
            } else if sum > ceiling.bits_per_sec().saturating_mul(MOST_TIMES) {
                let what = format!(
                    "{need} makes the sum of the needs {}, more than {MOST_TIMES} times the ceiling of {ceiling}",
                    said(sum)
                );
                reader.fail_key(section, "need", what);
            }
        }
        // Eq. 6 is linear in the need: the joint need of flows with redundancy grows as a single flow's.
        let flow = shares::Flow { need: Rate::from_bits_per_sec(all), retransmits };
        let counted = (section.bool("count-flows") == Some(true)).then_some(flows);
        classes.push(Class {
            name,
            priority: priority as u32,
            flow,
            flows,
            each: need,
            counted,
            queue,
            matches,
        });
    }
    classes.sort_by_key(|class| class.priority);
    classes
}

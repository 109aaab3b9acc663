//! `manifest.json`: everything that is needed to run it again.

use bandmaster_core::topology::Topology;
use serde_json::{Value, json};

use super::{FORMAT_VERSION, ReportSummary, StudyResults};

/// How the results came about, beyond the studies themselves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Manifest {
    /// Words of the command line after the program's name, without options that cannot change a result (`--jobs`,
    /// `--out`, `--force`, ...).
    pub(crate) command: Vec<String>,
}

impl Manifest {
    /// The text of `manifest.json`. Each case's scenario is complete except for its network, which is the position of
    /// an entry in the study's `topologies`: most cases share one.
    pub(crate) fn to_json(&self, summary: &ReportSummary, results: &[StudyResults<'_>]) -> String {
        let manifest = json!({
            "version": FORMAT_VERSION,
            "title": summary.title,
            "command": self.command,
            "complete": summary.complete,
            "trials": summary.trials,
            "studies": results.iter().map(study_value).collect::<Vec<Value>>(),
        });
        json_lines(&manifest, 4)
    }
}

/// JSON text with a line for each member of the outer `depth` levels, so that it can be read and compared by lines.
pub(crate) fn json_lines(value: &Value, depth: usize) -> String {
    let mut text = String::new();
    push_lines(&mut text, value, depth);
    text.push('\n');
    text
}

fn push_lines(text: &mut String, value: &Value, depth: usize) {
    let mut separator = "\n";
    match value {
        Value::Object(members) if depth > 0 && !members.is_empty() => {
            text.push('{');
            for (name, member) in members {
                text.push_str(separator);
                text.push_str(&format!("{}: ", json!(name)));
                push_lines(text, member, depth - 1);
                separator = ",\n";
            }
            text.push_str("\n}");
        }
        Value::Array(items) if depth > 0 && items.iter().any(|item| item.is_object() || item.is_array()) => {
            text.push('[');
            for item in items {
                text.push_str(separator);
                push_lines(text, item, depth - 1);
                separator = ",\n";
            }
            text.push_str("\n]");
        }
        value => text.push_str(&value.to_string()),
    }
}

fn study_value(results: &StudyResults<'_>) -> Value {
    let StudyResults { study, records, provenance } = results;
    let mut topologies: Vec<&Topology> = Vec::new();
    let cases: Vec<Value> = study
        .cases
        .iter()
        .enumerate()
        .map(|(index, case)| {
            let topology = &case.scenario.topology;
            let position = topologies.iter().position(|known| *known == topology).unwrap_or_else(|| {
                topologies.push(topology);
                topologies.len() - 1
            });
            // A network of thousands of hosts takes far longer as JSON than as a copy.
            let mut case = case.clone();
            let Topology { nodes, links, groups, .. } = &mut case.scenario.topology;
            nodes.clear();
            links.clear();
            groups.clear();
            let mut case = json!(case);
            case["scenario"]["topology"] = json!(position);
            case["finished"] = json!(records.iter().filter(|record| record.case == index).count());
            case
        })
        .collect();
    json!({
        "name": study.name,
        "title": study.title,
        "description": study.description,
        "provenance": provenance,
        "variants": study.variants,
        "sweeps": study.sweeps,
        "claims": study.claims,
        "figures": study.figures,
        "topologies": topologies,
        "cases": cases,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{results, study};

    #[test]
    fn a_shared_network_is_written_once_and_every_case_is_there() {
        let study = study();
        let mut results = [results(&study)];
        results[0].records.retain(|record| record.case != 1 || record.trial == 0);
        let summary = ReportSummary::new("Title", &results);
        let manifest = Manifest { command: vec!["run".to_owned(), "fair.toml".to_owned()] };
        let text = manifest.to_json(&summary, &results);
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["complete"], false);
        assert_eq!(json["command"], json!(["run", "fair.toml"]));
        let written = &json["studies"][0];
        assert_eq!(written["topologies"].as_array().unwrap().len(), 1);
        let cases = written["cases"].as_array().unwrap();
        assert_eq!(cases.len(), study.cases.len());
        assert_eq!(cases[1]["finished"], 1);
        assert_eq!(cases[0]["scenario"]["topology"], 0);
        assert_eq!(cases[0]["scenario"]["run"]["seed"], 1);
        assert_eq!(written["provenance"]["digest"], "abc");
        assert_eq!(text, manifest.to_json(&summary, &results));
    }

    #[test]
    fn lines_are_json_with_a_line_for_each_outer_member() {
        let value = json!({"a": [1, 2], "b": [{"c": 1}, {"d": [3]}], "e": {}, "f \"g\"": null});
        let text = json_lines(&value, 2);
        assert_eq!(
            text,
            "{\n\"a\": [1,2],\n\"b\": [\n{\"c\":1},\n{\"d\":[3]}\n],\n\"e\": {},\n\"f \\\"g\\\"\": null\n}\n"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}

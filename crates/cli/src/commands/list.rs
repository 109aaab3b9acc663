//! `bandmaster list`.

use bandmaster_core::params::Key;
use bandmaster_core::report::metric;
use bandmaster_core::scenario::PRESETS;
use bandmaster_core::{qdisc, scheme};
use clap::{Args, ValueEnum};
use comfy_table::Table;
use serde_json::{Map, Value, json};

use super::reproduce::REPRODUCTIONS;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::report::table::plain;

/// List what scenario files can name
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ListArgs {
    /// Which list; without it all
    #[arg(value_name = "WHAT")]
    what: Option<Listed>,
    /// JSON with every entry's parameters instead of a table
    #[arg(long)]
    json: bool,
}

/// What `list` lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Listed {
    /// Bandwidth control schemes
    Schemes,
    /// Queue disciplines
    Qdiscs,
    /// TCP congestion controls
    Tcp,
    /// Network builders
    Builders,
    /// Settings that a file can `include`
    Presets,
    /// Papers that `reproduce` redoes
    Reproductions,
    /// Metrics of a run, for claims and figures
    #[value(alias = "figures")]
    Metrics,
}

const HELP: &str = "\
Examples:
  bandmaster list
  bandmaster list schemes --json

Exit codes: 0 done, 2 usage.";

/// Network builders: `network.builder` in scenario files.
static BUILDERS: &[(&str, &str)] = &[
    ("custom", "Nothing: the file names every router, host, link and group"),
    ("dumbbell", "Hosts on both sides of one shared link"),
    ("star", "Hosts around one router"),
    ("parking-lot", "Routers in a row, hosts at each: flows cross one or many shared links"),
    ("leaf-spine", "Leaves with hosts, each joined to every spine"),
    ("fat-tree", "Three tiers of k-port routers with equal bandwidth throughout"),
    ("pod", "Hosts with a link to each of several top-of-rack routers, and one receiver"),
    ("dual-fat-tree", "A fat tree with two top-of-rack routers per rack and hosts linked to both"),
    ("graphml", "The routers and links of a map, as the Internet Topology Zoo has them, and hosts at each"),
];

/// Prints one list, or all.
pub(crate) fn list(args: &ListArgs, console: Console) -> Result<Exit, Failure> {
    let lists: Vec<Listed> = args.what.map_or_else(|| Listed::value_variants().to_vec(), |what| vec![what]);
    let text = if args.json {
        let lists: Map<String, Value> =
            lists.iter().map(|list| (list.word(), list.entries().into())).collect();
        format!("{:#}", Value::Object(lists))
    } else {
        let tables: Vec<String> = lists.iter().map(|list| table(*list)).collect();
        tables.join("\n\n")
    };
    console.print(&text)?;
    Ok(Exit::Success)
}

impl Listed {
    fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Every entry as JSON: `name`, `about`, and what else is known.
    fn entries(self) -> Vec<Value> {
        match self {
            Self::Schemes => (scheme::REGISTRY.iter())
                .map(|d| json!({"name": d.name, "about": d.about, "source": d.source, "keys": keys(d.keys)}))
                .collect(),
            Self::Qdiscs => (qdisc::registry::REGISTRY.iter())
                .map(|d| json!({"name": d.name, "about": d.about, "source": d.source, "keys": keys(d.keys)}))
                .collect(),
            Self::Tcp => (bandmaster_sim::CONGESTION_CONTROLS.iter())
                .map(|d| json!({"name": d.name, "about": d.about, "source": d.source}))
                .collect(),
            Self::Builders => {
                BUILDERS.iter().map(|(name, about)| json!({"name": name, "about": about})).collect()
            }
            Self::Presets => {
                PRESETS.iter().map(|p| json!({"name": p.name, "about": p.about(), "text": p.text})).collect()
            }
            Self::Reproductions => (REPRODUCTIONS.iter())
                .map(|r| {
                    let files: Vec<&str> = r.files.iter().map(|(path, _)| *path).collect();
                    json!({"name": r.name, "about": r.about, "files": files})
                })
                .collect(),
            Self::Metrics => metric::at(metric::SUMMARY)
                .map(|m| json!({"name": m.name, "unit": m.unit.word(), "about": m.doc}))
                .collect(),
        }
    }
}

fn keys(keys: &[Key]) -> Vec<Value> {
    keys.iter()
        .map(|key| {
            json!({
                "name": key.name,
                "allowed": key.kind.allowed(),
                "default": key.default,
                "required": key.required,
                "about": key.doc,
                "origin": key.origin,
            })
        })
        .collect()
}

fn table(list: Listed) -> String {
    let mut table = Table::new();
    for entry in list.entries() {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        table.add_row([&format!("  {}", text("name")), text("about"), text("unit")]);
        if !text("source").is_empty() {
            table.add_row(["", &format!("({})", text("source"))]);
        }
    }
    format!("{}\n{}", list.word(), plain(table))
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::json_schema;
    use bandmaster_core::scheme::REGISTRY;

    use super::*;

    #[test]
    fn every_builder_of_the_scenario_format_is_listed() {
        let allowed = json_schema(REGISTRY).to_string();
        let listed: Vec<Value> = BUILDERS.iter().map(|(name, _)| json!(name)).collect();
        assert!(
            allowed.contains(&Value::from(listed).to_string()),
            "the builders of the JSON Schema are others"
        );
    }

    #[test]
    fn every_list_has_entries_with_a_name_and_a_description() {
        for list in Listed::value_variants() {
            let entries = list.entries();
            assert!(!entries.is_empty(), "{} is empty", list.word());
            for entry in entries {
                assert!(entry["name"].is_string() && entry["about"].is_string(), "{entry}");
            }
        }
    }
}

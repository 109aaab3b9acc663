//! `docs/gateway.md`, `docs/agent.md`, `docs/controller.md` and `docs/switch.md`: their tables of keys are those of the readers,
//! and their examples are valid. `BANDMASTER_BLESS=1` rewrites the tables.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use bandmaster_core::agent;
use bandmaster_core::controller;
use bandmaster_core::file::Files;
use bandmaster_core::params::{Key, Kind};
use bandmaster_core::scheme::er2bc::deployment;
use bandmaster_core::switch;

const BEGIN: &str = "<!-- keys -->\n";
const END: &str = "<!-- end of keys -->";

fn page(name: &str) -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let text = fs::read_to_string(&path).expect("a page");
    (path, text)
}

fn table(reference: Vec<(&'static str, Vec<&'static Key>)>) -> String {
    let mut text = String::new();
    for (header, keys) in reference {
        let name = if header == "the file" { "Top of the file".to_owned() } else { format!("`{header}`") };
        let _ = writeln!(text, "\n{name}:\n\n| key | value | default | meaning |\n|---|---|---|---|");
        for key in keys {
            let value = match (key.kind, key.name) {
                (Kind::Nested, "dscp") => "a list such as [46, \"af41\"]".to_owned(),
                (Kind::Nested, "ports") if header == "the file" => "tables".to_owned(),
                (Kind::Nested, "ports") => "a list such as [5060, \"10000-20000\"]".to_owned(),
                (Kind::Nested, "classes" | "match" | "data" | "links" | "networks" | "routers") => {
                    "tables".to_owned()
                }
                (Kind::Nested, _) => "a table".to_owned(),
                (kind, _) => kind.allowed(),
            };
            let default = match (key.default, key.required) {
                (Some(default), _) => format!("`{default}`"),
                (None, true) => "needed".to_owned(),
                (None, false) => String::new(),
            };
            let _ = writeln!(text, "| `{}` | {value} | {default} | {} |", key.name, key.doc);
        }
    }
    text
}

fn compare(name: &str, new: &str) {
    let (path, text) = page(name);
    let (head, rest) = text.split_once(BEGIN).expect("the beginning of the table");
    let (old, tail) = rest.split_once(END).expect("the end of the table");
    if std::env::var_os("BANDMASTER_BLESS").is_some() {
        fs::write(path, format!("{head}{BEGIN}{new}{END}{tail}")).expect("written");
    } else {
        assert_eq!(old, new, "docs/{name} is old: BANDMASTER_BLESS=1 rewrites it");
    }
}

#[test]
fn the_tables_of_keys_are_the_readers() {
    let gateway = table(deployment::reference());
    compare("gateway.md", &(gateway + "\nThe keys of `[[data]]` are those of `[[classes.match]]`.\n"));
    compare("agent.md", &(table(agent::reference()) + "\n"));
    compare("controller.md", &(table(controller::reference()) + "\n"));
    compare("switch.md", &(table(switch::reference()) + "\n"));
}

fn examples(name: &str) -> Vec<String> {
    let (_, text) = page(name);
    let parts = text.split("```toml\n").skip(1).filter_map(|part| part.split_once("```"));
    parts.map(|(example, _)| example.to_owned()).collect()
}

/// The policy of the page.
#[derive(Debug)]
struct Mine(String);

impl Files for Mine {
    fn read(&self, name: &str) -> Result<String, String> {
        assert_eq!(name, "mine.toml");
        Ok(self.0.clone())
    }
}

#[test]
fn the_examples_are_valid() {
    let gateways = examples("gateway.md");
    assert_eq!(gateways.len(), 2);
    for example in gateways {
        deployment::parse("docs/gateway.md", &example).unwrap_or_else(|errors| panic!("{errors}"));
    }
    let examples_of_agent = examples("agent.md");
    let [host, router, sources @ ..] = &examples_of_agent[..] else { panic!("two examples and more") };
    assert_eq!(sources.len(), 4);
    // They are parts of a router's file.
    let sources = sources.iter().map(|source| format!("{router}\n{source}"));
    for example in [host.clone(), router.clone()].into_iter().chain(sources) {
        agent::parse("docs/agent.toml", &example).unwrap_or_else(|errors| panic!("{errors}"));
    }
    let switches = examples("switch.md");
    assert_eq!(switches.len(), 3);
    for example in switches {
        switch::parse("docs/switch.toml", &example).unwrap_or_else(|errors| panic!("{errors}"));
    }
    let [oracle, policy, routers, networks, allocator, paper, enrolling, whatif] =
        &examples("controller.md")[..]
    else {
        panic!("eight examples")
    };
    let [routed, placed] = [routers, networks].map(|part| format!("{oracle}\n{part}"));
    for example in [oracle, &routed, &placed, allocator, paper, enrolling, whatif] {
        controller::parse("controller.toml", example, &Mine(policy.clone()))
            .unwrap_or_else(|errors| panic!("{errors}"));
    }
}

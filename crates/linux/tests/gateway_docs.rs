//! `docs/gateway.md`: its table of keys is that of the reader, and its examples are valid. `BANDMASTER_BLESS=1` writes
//! the table anew.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use bandmaster_core::params::Kind;
use bandmaster_core::scheme::er2bc::deployment;

const BEGIN: &str = "<!-- keys -->\n";
const END: &str = "<!-- end of keys -->";

fn page() -> (std::path::PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gateway.md");
    let text = fs::read_to_string(&path).expect("docs/gateway.md");
    (path, text)
}

fn table() -> String {
    let mut text = String::new();
    for (header, keys) in deployment::reference() {
        let name = if header == "the file" { "Top of the file".to_owned() } else { format!("`{header}`") };
        let _ = writeln!(text, "\n{name}:\n\n| key | value | default | meaning |\n|---|---|---|---|");
        for key in keys {
            let value = match (key.kind, key.name) {
                (Kind::Nested, "dscp") => "a list such as [46, \"af41\"]".to_owned(),
                (Kind::Nested, "ports") => "a list such as [5060, \"10000-20000\"]".to_owned(),
                (Kind::Nested, "classes" | "match" | "data") => "tables".to_owned(),
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
    text + "\nThe keys of `[[data]]` are those of `[[classes.match]]`.\n"
}

#[test]
fn the_table_of_keys_is_the_readers() {
    let (path, text) = page();
    let (head, rest) = text.split_once(BEGIN).expect("the beginning of the table");
    let (old, tail) = rest.split_once(END).expect("the end of the table");
    let new = table();
    if std::env::var_os("BANDMASTER_BLESS").is_some() {
        fs::write(path, format!("{head}{BEGIN}{new}{END}{tail}")).expect("written");
    } else {
        assert_eq!(old, new, "docs/gateway.md is old: BANDMASTER_BLESS=1 writes it anew");
    }
}

#[test]
fn the_examples_are_valid() {
    let (_, text) = page();
    let examples: Vec<&str> = text
        .split("```toml\n")
        .skip(1)
        .filter_map(|part| part.split_once("```"))
        .map(|(example, _)| example)
        .collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        deployment::parse("docs/gateway.md", example).unwrap_or_else(|errors| panic!("{errors}"));
    }
}

//! `include`: keys from presets, and from files in the scenario's folder. The file's own keys override them.

use super::sources::Reader;
use crate::file::{Content, Error, Item, Place, Source, Table, read_included, suggestion};
use crate::params::Written;

/// A file that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name, as `include` names it.
    pub name: &'static str,
    /// Its text, which begins with a comment that says what it is.
    pub text: &'static str,
}

/// All of them.
pub static PRESETS: &[Preset] = &[
    Preset { name: "ns-3", text: include_str!("../../presets/ns-3.toml") },
    Preset { name: "linux-6", text: include_str!("../../presets/linux-6.toml") },
    Preset { name: "hosts-2012", text: include_str!("../../presets/hosts-2012.toml") },
];

impl Preset {
    /// What it is.
    pub fn about(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }
}

/// Most files that one may include through others.
const DEPTH: usize = 8;

/// Puts what the file includes under its own keys.
pub(super) fn resolve(reader: &mut Reader<'_>, root: Item) -> Item {
    below(reader, root, &mut Vec::new())
}

fn below(reader: &mut Reader<'_>, own: Item, within: &mut Vec<String>) -> Item {
    let Some(list) = own.table().and_then(|table| table.get("include")) else { return own };
    let items = match &list.content {
        Content::List(items) => items.clone(),
        _ => vec![list.clone()],
    };
    let mut base = Item { content: Content::Table(Table::default()), place: own.place.clone() };
    let mut before: Vec<&str> = Vec::new();
    for item in &items {
        let Some(name) = item.text() else {
            let hint = "write the name of a preset or file, or a list of them";
            reader.fail_with(&item.place, "include", format!("{item} is not a text"), hint);
            continue;
        };
        if before.contains(&name) {
            reader.fail(&item.place, "include", format!("\"{name}\" occurs twice"));
            continue;
        }
        before.push(name);
        if let Some(included) = included(reader, item, name, within)
            && let Err((place, why)) = base.overlay(&included)
        {
            reader.fail(&place, "", why);
        }
    }
    if let Err((place, why)) = base.overlay(&own) {
        reader.fail(&place, "", why);
    }
    base
}

/// The keys of an included file, and of those that it includes.
fn included(reader: &mut Reader<'_>, item: &Item, name: &str, within: &mut Vec<String>) -> Option<Item> {
    if within.iter().any(|outer| outer == name) {
        let chain: Vec<&str> = within.iter().map(String::as_str).chain([name]).collect();
        let message = format!("\"{name}\" includes itself: {}", chain.join(" > "));
        reader.fail_with(&item.place, "include", message, "leave one of them out");
        return None;
    }
    if within.len() == DEPTH {
        let message = format!("\"{name}\" is included through more than {DEPTH} files");
        reader.fail_with(&item.place, "include", message, "include it in the scenario itself");
        return None;
    }
    let preset = PRESETS.iter().find(|preset| preset.name == name);
    let text = match preset {
        Some(preset) => preset.text.to_owned(),
        None if name.ends_with(".toml") => match reader.text(name) {
            Ok(text) => text,
            Err(why) => {
                reader.fail(&item.place, "include", why);
                return None;
            }
        },
        None => {
            let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
            let message = format!("unknown preset `{name}`");
            let hint = format!("{}, or name a file that ends in `.toml`", suggestion(name, &names));
            reader.fail_with(&item.place, "include", message, hint);
            return None;
        }
    };
    let shown = match preset {
        Some(_) => name.to_owned(),
        None => reader.beside(name),
    };
    let mut read = match read_included(&shown, &text) {
        Ok(read) => read,
        Err(errors) => {
            reader.errors.extend(errors);
            return None;
        }
    };
    let Content::Table(table) = &mut read.content else { return None };
    // The version is that of a file, not of what includes it.
    let version = table.entry("version").cloned();
    table.entries.retain(|entry| entry.key != "version");
    match version {
        Some(entry) if matches!(entry.item.content, Content::Scalar(Written::Integer(1))) => {}
        Some(entry) => {
            let message = format!("{} is not a version that this program reads", entry.item);
            reader.fail_with(&entry.item.place, "version", message, "write version = 1");
            return None;
        }
        None => {
            let place = Place { source: Source::Include(shown.into()), ..Place::start() };
            reader.fail_with(&place, "version", "is missing", "write version = 1 at the top of the file");
            return None;
        }
    }
    within.push(name.to_owned());
    let mut read = below(reader, read, within);
    within.pop();
    if let Content::Table(table) = &mut read.content {
        table.entries.retain(|entry| entry.key != "include");
    }
    Some(read)
}

/// The error of an option that changes `include`.
pub(super) fn refuse_flag(place: &Place) -> Error {
    Error::at("", place, "include", "is what the file itself says")
        .hint("write it there, or use --set on the keys")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::scenario::{Files, Options, Study, explain, parse};

    /// Files by name.
    #[derive(Debug)]
    struct Folder(BTreeMap<&'static str, &'static str>);

    impl Files for Folder {
        fn read(&self, name: &str) -> Result<String, String> {
            self.0.get(name).map(|text| (*text).to_owned()).ok_or_else(|| "no such file".to_owned())
        }
    }

    const NETWORK: &str = "[network]\nbuilder = \"dumbbell\"\nleft = 1\nright = 1\n\
                           access = { rate = \"1gbit\", delay = \"1ms\" }\n\
                           bottleneck = { rate = \"10mbit\", delay = \"5ms\" }\n\
                           [[flows]]\nname = \"f\"\nfrom = \"left\"\nto = \"right\"\n";

    fn read(head: &str, files: &[(&'static str, &'static str)]) -> Result<Study, String> {
        let text = format!("version = 1\nname = \"x\"\n{head}\n[run]\nduration = \"2s\"\n{NETWORK}");
        let folder = Folder(files.iter().copied().collect());
        let options = Options { files: Some(&folder), ..Options::default() };
        parse("dir/x.toml", &text, &options).map_err(|errors| errors.to_string())
    }

    #[test]
    fn later_files_win_and_the_file_itself_wins_over_all() {
        let files = [
            ("a.toml", "version = 1\n[run]\ntrials = 3\nseed = 7\nsample = \"50ms\"\n[tcp]\nsack = false"),
            ("b.toml", "version = 1\ninclude = \"hosts-2012\"\n[run]\ntrials = 4\nduration = \"9s\""),
        ];
        let study = read("include = [\"a.toml\", \"b.toml\"]\ntcp = { initial-window = \"20pkt\" }", &files)
            .expect("sound");
        let scenario = &study.cases[0].scenario;
        assert_eq!((scenario.run.trials, scenario.run.seed), (4, 7));
        assert_eq!(scenario.run.duration.to_string(), "2s");
        let crate::scenario::Transport::Tcp { settings, .. } = &scenario.flows[0].transport else {
            panic!("TCP")
        };
        assert_eq!((settings.initial_window, settings.sack), (20, false));
        assert_eq!(settings.initial_rto.to_string(), "3s");
    }

    #[test]
    fn values_say_which_file_they_are_from() {
        let text = format!(
            "version = 1\nname = \"x\"\ninclude = [\"linux-6\"]\n[run]\nduration = \"2s\"\n{NETWORK}"
        );
        let explained = explain("dir/x.toml", &text, &Options::default()).expect("sound");
        let origin = |path: &str| {
            explained.iter().find(|e| e.path.ends_with(path)).map(|e| e.origin.clone()).expect("a key")
        };
        assert_eq!(origin("tcp.quick-acks"), "linux-6:8");
        assert_eq!(origin("run.duration"), "dir/x.toml:5");
    }

    #[test]
    fn errors_point_into_the_included_file() {
        for (head, files, expected) in [
            (
                "include = \"a.toml\"",
                &[("a.toml", "version = 1\n[tcp]\nmin-rto = \"5\"")][..],
                "dir/a.toml:3:11: error: tcp.min-rto: \"5\" has no unit",
            ),
            (
                "include = \"a.toml\"",
                &[("a.toml", "version = 1\nbrand = 1")],
                "dir/a.toml:2:1: error: unknown key `brand`",
            ),
            ("include = \"a.toml\"", &[("a.toml", "version = 1\n[tcp\n")], "dir/a.toml:2:5: error: not TOML"),
            (
                "include = \"a.toml\"",
                &[("a.toml", "[tcp]")],
                "dir/a.toml:1:1: error: version: is missing; write version = 1",
            ),
            (
                "include = \"a.toml\"",
                &[("a.toml", "version = 2")],
                "dir/a.toml:1:11: error: version: 2 is not a version",
            ),
            ("include = \"a.toml\"", &[], "dir/x.toml:3:11: error: include: a.toml: no such file"),
            (
                "include = \"linux-7\"",
                &[],
                "dir/x.toml:3:11: error: include: unknown preset `linux-7`; did you mean `linux-6`?",
            ),
            ("include = [\"ns-3\", \"ns-3\"]", &[], "dir/x.toml:3:20: error: include: \"ns-3\" occurs twice"),
            (
                "include = \"a.toml\"",
                &[
                    ("a.toml", "version = 1\ninclude = \"b.toml\""),
                    ("b.toml", "version = 1\ninclude = [\"a.toml\"]"),
                ],
                "dir/b.toml:2:12: error: include: \"a.toml\" includes itself: a.toml > b.toml > a.toml; leave one of them out",
            ),
            (
                "include = \"a.toml\"",
                &[("a.toml", "version = 1\nrun = 3")],
                "dir/x.toml:4:2: error: `run` is the value 3, not a table",
            ),
            ("include = 3", &[], "dir/x.toml:3:11: error: include: 3 is not"),
        ] {
            let found = read(head, files).expect_err(expected);
            assert!(found.contains(expected), "{head}: {found}");
        }
    }

    #[test]
    fn only_the_file_itself_includes() {
        let variant = "[[compare]]\nname = \"v\"\nset = { include = [\"ns-3\"] }";
        let found = read(variant, &[]).expect_err("common to all variants");
        assert!(found.contains("changes `include`, which is common to all variants"), "{found}");
        let text = format!("version = 1\nname = \"x\"\n[run]\nduration = \"2s\"\n{NETWORK}");
        let overrides = vec!["include=ns-3".parse().expect("an override")];
        let found = parse("x.toml", &text, &Options { overrides, ..Options::default() })
            .expect_err("refused")
            .to_string();
        assert!(
            found.contains("--set include=ns-3: error: include: is what the file itself says"),
            "{found}"
        );
    }

    #[test]
    fn presets_are_read_and_say_what_they_are() {
        for preset in super::PRESETS {
            assert!(preset.about().ends_with('.') && preset.text.starts_with("# TCP"), "{}", preset.name);
            let head = format!("include = \"{}\"", preset.name);
            let with = read(&head, &[]).unwrap_or_else(|e| panic!("{e}"));
            assert!(with.cases != read("", &[]).expect("sound").cases, "{} changes nothing", preset.name);
        }
    }
}

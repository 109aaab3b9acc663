//! Reads one table by its keys: unknown keys, missing keys, wrong values, defaults, and where each value came from.

use std::rc::Rc;

use super::Files;
use super::error::Error;
use super::place::{Place, Source};
use super::raw::{Content, Item, Table, scalar_text};
use super::table::{Shape, TableDef};
use super::words;
use crate::params::{Choice, Key, Kind, NamedText, Params, Value, Written};
use crate::qdisc::dscp;
use crate::rng::SpanDraw;
use crate::time::Span;
use crate::units::{Bytes, Rate};

/// A key of the effective scenario, its value and where that came from.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Explained {
    /// Dotted path, as `--set` takes it.
    pub path: String,
    /// Value as in TOML.
    pub value: String,
    /// `file:line`, `default (reason)`, `--set` or `variant x`.
    pub origin: String,
}

/// Collects what is wrong and what was read.
pub(crate) struct Reader<'a, S = ()> {
    file: Rc<str>,
    files: Option<&'a dyn Files>,
    /// What the owner of the tables needs in addition to the file.
    pub(crate) sources: S,
    /// A key that chooses from words, and further words of it.
    pub(crate) further: Option<(&'static str, Vec<&'static str>)>,
    pub(crate) errors: Vec<Error>,
    /// None: nobody asks.
    pub(crate) explained: Option<Vec<Explained>>,
}

/// A table and what stands behind it where it has no value.
#[derive(Clone)]
pub(crate) struct Layer<'a> {
    pub(crate) path: String,
    pub(crate) place: Place,
    pub(crate) table: Option<&'a Table>,
}

/// A table as read.
pub(crate) struct Section<'a> {
    pub(crate) path: String,
    pub(crate) place: Place,
    /// True when nothing was wrong with the table's own keys.
    pub(crate) sound: bool,
    found: Vec<Found<'a>>,
}

struct Found<'a> {
    key: &'static Key,
    path: String,
    place: Place,
    item: Option<&'a Item>,
    value: Option<Value>,
}

impl<'a> Layer<'a> {
    pub(crate) fn new(path: impl Into<String>, item: &'a Item) -> Self {
        Self { path: path.into(), place: item.place.clone(), table: item.table() }
    }

    /// A table that the file does not have.
    pub(crate) fn absent(path: impl Into<String>, place: &Place) -> Self {
        Self { path: path.into(), place: place.clone(), table: None }
    }
}

impl<'r, S> Reader<'r, S> {
    /// A reader of a file that may name `files`; none: it may not name any.
    pub(crate) fn new(file: &str, files: Option<&'r dyn Files>, sources: S) -> Self {
        Self { file: file.into(), files, sources, further: None, errors: Vec::new(), explained: None }
    }

    /// The text of the file `name`.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(crate) fn text(&self, name: &str) -> Result<String, String> {
        let Some(files) = self.files else {
            return Err(format!("\"{name}\" is a file, and there are no files here"));
        };
        files.read(name).map_err(|why| format!("{name}: {why}"))
    }

    /// The name in messages of the file `name` in the folder of this one.
    pub(crate) fn beside(&self, name: &str) -> String {
        match self.file.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{name}"),
            None => name.to_owned(),
        }
    }

    /// Notes that something is wrong.
    pub(crate) fn fail(&mut self, place: &Place, path: &str, message: impl Into<String>) {
        self.errors.push(Error::at(&self.file, place, path, message));
    }

    /// Notes that something is wrong, and what to write instead.
    pub(crate) fn fail_with(
        &mut self,
        place: &Place,
        path: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.errors.push(Error::at(&self.file, place, path, message).hint(hint));
    }

    /// Notes that the value of `key` is wrong.
    pub(crate) fn fail_key(&mut self, section: &Section<'_>, key: &str, message: impl Into<String>) {
        self.fail(section.place(key), section.key_path(key), message);
    }

    /// Notes that the value of `key` is wrong, and what to write instead.
    pub(crate) fn fail_key_with(
        &mut self,
        section: &Section<'_>,
        key: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.fail_with(section.place(key), section.key_path(key), message, hint);
    }

    /// Notes where the value of `key` came from, where somebody asks.
    pub(crate) fn explain(
        &mut self,
        (path, key): (&str, &str),
        value: impl FnOnce() -> Option<String>,
        item: Option<&Item>,
        origin: &str,
    ) {
        let Some(explained) = &mut self.explained else { return };
        let Some(value) = value() else { return };
        let origin = match item.map(|i| &i.place) {
            None if origin.is_empty() => "default".to_owned(),
            None => format!("default ({origin})"),
            Some(place) => match &place.source {
                Source::File => format!("{}:{}", self.file, place.line),
                Source::Include(file) => format!("{file}:{}", place.line),
                Source::Variant(name) => format!("variant {name}"),
                Source::Sweep(point) => point.to_string(),
                Source::Flag(flag) => flag.split_whitespace().next().unwrap_or(flag).to_owned(),
            },
        };
        explained.push(Explained { path: joined(path, key), value, origin });
    }

    /// Reads the table of `layer`.
    pub(crate) fn section<'a>(&mut self, def: &'static TableDef, layer: &Layer<'a>) -> Section<'a> {
        self.section_over(def, core::slice::from_ref(layer))
    }

    /// Reads the first of `layers`; a key that it lacks has the value of the next layer that has it.
    pub(crate) fn section_over<'a>(&mut self, def: &'static TableDef, layers: &[Layer<'a>]) -> Section<'a> {
        let choice = def.selector.map(|selector| {
            let written = layers[0].table.and_then(|t| t.get(selector.key)).and_then(Item::text);
            let default =
                def.keys_for(None).into_iter().find(|k| k.name == selector.key).and_then(|k| k.default);
            let known = |name: &str| selector.choices.iter().any(|(choice, _)| *choice == name);
            (selector, written.or(default).filter(|name| known(name)))
        });
        let keys = match choice {
            Some((_, None)) => def.keys_for(Some("")),
            Some((_, choice)) => def.keys_for(choice),
            None => def.keys_for(None),
        };
        let foreign = |name: &str| {
            let (selector, choice) = choice?;
            let owner = selector.choices.iter().find(|(_, keys)| keys.iter().any(|k| k.name == name))?.0;
            Some(choice.map(|choice| {
                format!("`{name}` goes with {} = \"{owner}\", not with \"{choice}\"", selector.key)
            }))
        };
        let shape = |name: &str| def.shape(name);
        self.read(&keys, layers, def.header, &foreign, &shape)
    }

    /// Reads a table of a registry entry: the first of `layers` with `keys`.
    pub(crate) fn entry_section<'a>(
        &mut self,
        keys: &[&'static [Key]],
        layer: &Layer<'a>,
        header: &str,
    ) -> Section<'a> {
        let keys: Vec<&Key> = keys.iter().copied().flatten().collect();
        self.read(&keys, core::slice::from_ref(layer), header, &|_| None, &|_| None)
    }

    fn read<'a>(
        &mut self,
        keys: &[&'static Key],
        layers: &[Layer<'a>],
        header: &str,
        foreign: &dyn Fn(&str) -> Option<Option<String>>,
        shape: &dyn Fn(&str) -> Option<Shape>,
    ) -> Section<'a> {
        let errors_before = self.errors.len();
        let own = &layers[0];
        for entry in own.table.iter().flat_map(|t| &t.entries) {
            if let Some(key) = keys.iter().find(|k| k.is_called(&entry.key)) {
                if key.name != entry.key && own.table.is_some_and(|t| t.get(key.name).is_some()) {
                    let message = format!("`{}` conflicts with `{}`, its new name", entry.key, key.name);
                    self.fail(&entry.place, &own.path, message);
                }
                continue;
            }
            match foreign(&entry.key) {
                Some(Some(message)) => self.fail(&entry.place, &own.path, message),
                Some(None) => {}
                None => {
                    let names: Vec<&str> = keys.iter().map(|k| k.name).collect();
                    let message = format!("unknown key `{}` in {header}", entry.key);
                    self.fail_with(&entry.place, &own.path, message, words::suggestion(&entry.key, &names));
                }
            }
        }
        let mut found = Vec::new();
        for key in keys.iter().copied() {
            let written = layers
                .iter()
                .find_map(|l| Some((l, l.table?.get(key.name).or_else(|| l.table?.get(key.former?))?)));
            let path = joined(written.map_or(&own.path, |(layer, _)| &layer.path), key.name);
            let item = written.map(|(_, item)| item);
            if item.is_none() && key.required {
                let hint = match shape(key.name) {
                    Some(Shape::Table(_)) => format!("write [{path}]"),
                    Some(Shape::Tables(_)) => format!("write [[{path}]]"),
                    Some(_) => "write a list".to_owned(),
                    None => format!("write {}", key.kind.allowed()),
                };
                self.fail_with(&own.place, &path, "is missing", hint);
            }
            let value = self.value(key, &path, item);
            if key.kind != Kind::Nested {
                let shown = || item.map(Item::to_string).or_else(|| default_text(key));
                self.explain((&own.path, key.name), shown, item, key.origin);
            }
            let place = item.map_or(&own.place, |i| &i.place).clone();
            found.push(Found { key, path, place, item, value });
        }
        let sound = self.errors.len() == errors_before;
        Section { path: own.path.clone(), place: own.place.clone(), sound, found }
    }

    fn value(&mut self, key: &'static Key, path: &str, item: Option<&Item>) -> Option<Value> {
        let Some(item) = item else {
            let default = key.default?;
            return match key.kind {
                Kind::Nested => None,
                Kind::Text => Some(Value::Text(default.to_owned())),
                kind => kind.parse(&Written::from_word(default)).ok(),
            };
        };
        let further = self.further.as_ref().filter(|(of, _)| *of == key.name);
        let further = further.map(|(_, words)| words.clone()).unwrap_or_default();
        if let Content::Scalar(Written::Text(text)) = &item.content
            && further.iter().any(|word| word == text)
        {
            return Some(Value::Text(text.clone()));
        }
        match (key.kind, &item.content) {
            (Kind::Nested, _) => None,
            (Kind::Files, _) => self.files(path, item),
            (Kind::TextList, Content::List(items)) => {
                let texts: Option<Vec<String>> = items.iter().map(|i| i.text().map(str::to_owned)).collect();
                if texts.is_none() {
                    self.fail(&item.place, path, format!("{item} is not {}", key.kind.allowed()));
                }
                texts.map(Value::List)
            }
            (Kind::IntegerList, Content::List(items)) => {
                if let Some(wrong) = items.iter().find(|i| ordinal(i).is_none()) {
                    self.fail(&wrong.place, path, format!("{wrong} is not a whole number from 1"));
                    return None;
                }
                Some(Value::List(items.iter().map(ToString::to_string).collect()))
            }
            (kind, Content::Scalar(written)) => match kind.parse(written) {
                Ok(value) => Some(value),
                Err(why) => {
                    let message = format!("{} {why}", scalar_text(written));
                    match (kind, written) {
                        (Kind::Choice(words), Written::Text(text))
                            if words::nearest(text, words).is_some() =>
                        {
                            let name = words::nearest(text, words).unwrap_or_default();
                            self.fail_with(&item.place, path, message, format!("did you mean \"{name}\"?"));
                        }
                        _ if why.says_what_to_write() => {
                            let further = further.iter().map(|word| format!(", or \"{word}\""));
                            self.fail(&item.place, path, message + &further.collect::<String>());
                        }
                        _ => self.fail_with(&item.place, path, message, format!("write {}", kind.allowed())),
                    }
                    None
                }
            },
            (kind, Content::Date(_) | Content::List(_) | Content::Table(_)) => {
                self.fail(&item.place, path, format!("{item} is not {}", kind.allowed()));
                None
            }
        }
    }

    /// The files that `item` names, read.
    fn files(&mut self, path: &str, item: &Item) -> Option<Value> {
        let items =
            if let Content::List(items) = &item.content { items } else { core::slice::from_ref(item) };
        let mut files = Vec::new();
        for named in items {
            let Some(name) = named.text() else {
                self.fail(&named.place, path, format!("{named} is not {}", Kind::Files.allowed()));
                return None;
            };
            let is_file = name.contains('.');
            match is_file.then(|| self.text(name)).transpose() {
                Ok(text) => files.push(NamedText { name: name.to_owned(), text }),
                Err(why) => {
                    self.fail(&named.place, path, why);
                    return None;
                }
            }
        }
        Some(Value::Files(files))
    }

    /// The table at a nested key, or a layer without one.
    pub(crate) fn table<'a>(&mut self, section: &Section<'a>, key: &str) -> Layer<'a> {
        let path = joined(&section.path, key);
        match section.item(key) {
            None => Layer::absent(path, &section.place),
            Some(item) => {
                if item.table().is_none() {
                    self.fail(&item.place, &path, format!("{item} is not a table"));
                }
                Layer::new(path, item)
            }
        }
    }

    /// The tables in the list at a nested key.
    pub(crate) fn tables<'a>(&mut self, section: &Section<'a>, key: &str) -> Vec<Layer<'a>> {
        let path = joined(&section.path, key);
        let Some(item) = section.item(key) else { return Vec::new() };
        let Content::List(items) = &item.content else {
            self.fail(&item.place, &path, format!("{item} is not a list of tables"));
            return Vec::new();
        };
        let mut layers = Vec::new();
        for (position, element) in items.iter().enumerate() {
            let path = joined(&path, &element.name_in_list(position));
            if element.table().is_some() {
                layers.push(Layer::new(path, element));
            } else {
                self.fail(&element.place, &path, format!("{element} is not a table"));
            }
        }
        layers
    }

    /// The items of the list at a nested key; none when the key is absent or wrong.
    pub(crate) fn items<'a>(&mut self, section: &Section<'a>, key: &str) -> Option<&'a [Item]> {
        let item = section.item(key)?;
        match &item.content {
            Content::List(items) => Some(items),
            Content::Scalar(_) | Content::Date(_) | Content::Table(_) => {
                self.fail_key(section, key, format!("{item} is not a list"));
                None
            }
        }
    }

    /// The code points at `key`, as text.
    pub(crate) fn code_points(&mut self, section: &Section<'_>, key: &str) -> Option<Vec<String>> {
        let item = section.item(key)?;
        let Content::List(items) = &item.content else {
            self.fail_key(section, key, format!("{item} is not a list of code points, as [46] or [\"ef\"]"));
            return None;
        };
        self.explain(("", section.key_path(key)), || Some(item.to_string()), Some(item), "");
        let name = |item: &Item| {
            let text = match &item.content {
                Content::Scalar(Written::Integer(number)) => number.to_string(),
                _ => item.text()?.to_owned(),
            };
            dscp::code_point(&text).map(|_| text)
        };
        let names: Vec<Option<String>> = items.iter().map(name).collect();
        if let Some(wrong) = names.iter().position(Option::is_none) {
            let (path, wrong) = (section.key_path(key), &items[wrong]);
            let message = format!(
                "{wrong} is not a code point; write a number from 0 to 63, \"ef\", \"af41\" or \"cs6\""
            );
            self.fail(&wrong.place, path, message);
        }
        names.into_iter().collect()
    }

    /// Checks that the text at `key` is a name of letters, digits, `-` and `_`, and returns it.
    pub(crate) fn name(&mut self, section: &Section<'_>, key: &str) -> Option<String> {
        let name = section.text(key)?;
        if words::is_name(&name) {
            return Some(name);
        }
        self.fail_key(section, key, format!("\"{name}\" is not a name of letters, digits, - and _"));
        None
    }

    /// Notes names that occur twice, at the later place.
    pub(crate) fn unique(&mut self, names: &[(String, Place, String)]) {
        let mut seen = std::collections::BTreeMap::new();
        for (name, place, path) in names {
            if let Some(first) = seen.insert(name, place) {
                let there = if first.line > 0 { format!(" (line {})", first.line) } else { String::new() };
                self.fail(place, path, format!("the name `{name}` is taken{there}"));
                seen.insert(name, first);
            }
        }
    }
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $variant:ident($type:ty),)+) => {$(
        $(#[$doc])*
        pub(crate) fn $name(&self, key: &str) -> Option<$type> {
            match self.entry(key).value.as_ref()? {
                Value::$variant(value) => Some(value.clone()),
                other => panic!("key {key} holds {other:?}, not {}", stringify!($variant)),
            }
        }
    )+};
}

impl<'a> Section<'a> {
    fn entry(&self, key: &str) -> &Found<'a> {
        self.found
            .iter()
            .find(|f| f.key.name == key)
            .unwrap_or_else(|| panic!("{} has no key {key}", self.path))
    }

    /// True when the section has the key, written or not.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.found.iter().any(|f| f.key.name == key)
    }

    /// What is known of `key`.
    pub(crate) fn key(&self, key: &str) -> &'static Key {
        self.entry(key).key
    }

    /// What was written at `key`.
    pub(crate) fn item(&self, key: &str) -> Option<&'a Item> {
        self.entry(key).item
    }

    /// Where `key` was written, or else where its table is.
    pub(crate) fn place(&self, key: &str) -> &Place {
        &self.entry(key).place
    }

    /// Dotted path of `key`, where it was written.
    pub(crate) fn key_path(&self, key: &str) -> &str {
        &self.entry(key).path
    }

    /// The name at `key`, its place and its path, for [`Reader::unique`].
    pub(crate) fn name_entry(&self, key: &str) -> Option<(String, Place, String)> {
        Some((self.text(key)?, self.place(key).clone(), self.key_path(key).to_owned()))
    }

    /// The values of a registry entry, when all are right.
    pub(crate) fn params(&self, keys: &'static [Key]) -> Option<Params> {
        let value = |key: &'static Key| Some((key.name, self.entry(key.name).value.clone()?));
        self.sound.then(|| Params::new(keys.iter().filter_map(value).collect()))
    }

    /// A list of ordinal numbers; empty when absent or wrong.
    pub(crate) fn ordinals(&self, key: &str) -> Vec<u64> {
        match self.item(key).map(|i| &i.content) {
            Some(Content::List(items)) => items.iter().filter_map(ordinal).collect(),
            _ => Vec::new(),
        }
    }

    /// What the word at `key` stands for.
    pub(crate) fn choice<T: Choice>(&self, key: &str) -> Option<T> {
        Some(T::of(&self.text(key)?))
    }

    getters! {
        /// A rate.
        rate: Rate(Rate),
        /// A span.
        span: Span(Span),
        /// A number of bytes.
        bytes: Bytes(Bytes),
        /// A drawn span.
        draw: Draw(SpanDraw),
        /// A whole number or a number of packets.
        integer: Integer(i64),
        /// A number.
        float: Float(f64),
        /// A truth value.
        bool: Bool(bool),
        /// A word or text.
        text: Text(String),
        /// Texts.
        list: List(Vec<String>),
    }
}

/// `table.key`; `key` at the top of the file.
pub(crate) fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { [path, ".", key].concat() }
}

/// The default of `key` as in TOML.
fn default_text(key: &Key) -> Option<String> {
    let written = match key.kind {
        Kind::Text | Kind::TextList => Written::Text(key.default?.to_owned()),
        _ => Written::from_word(key.default?),
    };
    Some(scalar_text(&written))
}

fn ordinal(item: &Item) -> Option<u64> {
    match &item.content {
        Content::Scalar(Written::Integer(n)) if *n >= 1 => u64::try_from(*n).ok(),
        _ => None,
    }
}

//! What was written: a tree of values that know where they stand.

use core::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Error;
use super::place::{Place, Source};
use crate::params::Written;

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) content: Content,
    pub(crate) place: Place,
}

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Scalar(Written),
    /// A date or time of TOML, which no key takes.
    Date(String),
    List(Vec<Item>),
    Table(Table),
}

/// Keys and values in the order of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) entries: Vec<Entry>,
    /// Made by a key with dots, which names one of its keys: `queue.limit = "5pkt"`.
    pub(crate) is_dotted: bool,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Of the key.
    pub(crate) place: Place,
    pub(crate) item: Item,
}

impl Table {
    pub(crate) fn get(&self, key: &str) -> Option<&Item> {
        self.entry(key).map(|e| &e.item)
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.key == key)
    }
}

impl Item {
    pub(crate) fn table(&self) -> Option<&Table> {
        match &self.content {
            Content::Table(table) => Some(table),
            Content::Scalar(_) | Content::Date(_) | Content::List(_) => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar(Written::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_empty_list(&self) -> bool {
        matches!(&self.content, Content::List(items) if items.is_empty())
    }

    /// The value as an axis label or a point of a sweep: a text without its quotes, else as in TOML.
    pub(crate) fn label(&self) -> String {
        self.text().map_or_else(|| self.to_string(), str::to_owned)
    }

    /// The value as if `source` had written it.
    pub(crate) fn by(&self, source: &Source) -> Self {
        let content = match &self.content {
            Content::List(items) => Content::List(items.iter().map(|i| i.by(source)).collect()),
            Content::Table(table) => Content::Table(Table {
                entries: table
                    .entries
                    .iter()
                    .map(|e| Entry { key: e.key.clone(), place: e.place.by(source), item: e.item.by(source) })
                    .collect(),
                is_dotted: table.is_dotted,
            }),
            Content::Scalar(_) | Content::Date(_) => self.content.clone(),
        };
        Self { content, place: self.place.by(source) }
    }

    /// What the element is called in a dotted path: its `name` or `id`, the ends of a link joined by `-`, or else its
    /// position.
    pub(crate) fn name_in_list(&self, position: usize) -> String {
        let table = self.table();
        let word = |key| table.and_then(|t| t.get(key)).and_then(Self::text);
        if let Some(name) = word("name").or_else(|| word("id")) {
            return name.to_owned();
        }
        if let Some(Content::List(ends)) = table.and_then(|t| t.get("ends")).map(|i| &i.content)
            && let Some(ends) = ends.iter().map(Self::text).collect::<Option<Vec<_>>>()
        {
            return ends.join("-");
        }
        position.to_string()
    }

    /// Writes `item` at `path`: elements of lists by name or position, missing tables made on the way. A table is
    /// merged into a table or list; anything else, and the table of a queue or capacity, replaces what was there. Of a
    /// queue, a key with dots changes one key.
    ///
    /// # Errors
    /// When the path leads through something that is not a table, or to an element that the list lacks: the place of
    /// the key that does not fit, and why.
    pub(crate) fn assign(
        &mut self,
        path: &[String],
        key_place: &Place,
        item: &Self,
    ) -> Result<(), (Place, String)> {
        self.assign_below(&mut Vec::new(), path, key_place, item)
    }

    fn assign_below(
        &mut self,
        walked: &mut Vec<String>,
        path: &[String],
        key_place: &Place,
        item: &Self,
    ) -> Result<(), (Place, String)> {
        let Some((step, rest)) = path.split_first() else {
            if let (Content::Table(from), Content::Table(_) | Content::List(_)) =
                (&item.content, &self.content)
                && (from.is_dotted || from.get("discipline").is_none())
                && !walked.last().is_some_and(|key| ["capacity", "capacity-back"].contains(&key.as_str()))
            {
                for entry in &from.entries {
                    let path = split_path(&entry.key).map_err(|why| (entry.place.clone(), why))?;
                    self.assign_below(walked, &path, &entry.place, &entry.item)?;
                }
            } else {
                *self = item.clone();
            }
            return Ok(());
        };
        match &mut self.content {
            Content::Table(table) => {
                let at = table.entries.iter().position(|e| e.key == *step).unwrap_or_else(|| {
                    let empty = Self { content: Content::Table(Table::default()), place: key_place.clone() };
                    table.entries.push(Entry { key: step.clone(), place: key_place.clone(), item: empty });
                    table.entries.len() - 1
                });
                let entry = &mut table.entries[at];
                walked.push(step.clone());
                entry.item.assign_below(walked, rest, key_place, item)?;
                if rest.is_empty() {
                    entry.place = key_place.clone();
                }
            }
            Content::List(items) => {
                let names: Vec<String> = items.iter().enumerate().map(|(i, e)| e.name_in_list(i)).collect();
                let at = names
                    .iter()
                    .position(|n| n == step)
                    .or_else(|| step.parse::<usize>().ok().filter(|i| *i < items.len()));
                let Some(at) = at else {
                    let (list, known) = (walked.join("."), super::words::list(&names));
                    return Err((
                        key_place.clone(),
                        format!("`{list}` has no element `{step}`; it has {known}"),
                    ));
                };
                walked.push(step.clone());
                items[at].assign_below(walked, rest, key_place, item)?;
            }
            Content::Scalar(_) | Content::Date(_) => {
                let why = format!("`{}` is the value {self}, not a table", walked.join("."));
                return Err((key_place.clone(), why));
            }
        }
        walked.pop();
        Ok(())
    }

    /// Puts a table over this one. Tables merge, but for those of a queue or capacity; anything else, lists too, replaces what was there.
    ///
    /// # Errors
    /// The place of a table that would merge with a value, and why not.
    pub(crate) fn overlay(&mut self, over: &Self) -> Result<(), (Place, String)> {
        let (Content::Table(under), Content::Table(over)) = (&mut self.content, &over.content) else {
            return Ok(());
        };
        for entry in &over.entries {
            let Some(old) = under.entries.iter_mut().find(|old| old.key == entry.key) else {
                under.entries.push(entry.clone());
                continue;
            };
            let is_whole = entry.item.table().is_some_and(|t| t.get("discipline").is_some())
                || ["capacity", "capacity-back"].contains(&entry.key.as_str());
            match (old.item.table(), entry.item.table()) {
                (Some(_), Some(_)) if !is_whole => old.item.overlay(&entry.item)?,
                (None, Some(_))
                    if matches!(old.item.content, Content::Scalar(_))
                        && !is_whole
                        && entry.key != "queue" =>
                {
                    let why = format!("`{}` is the value {}, not a table", entry.key, old.item);
                    return Err((entry.place.clone(), why));
                }
                _ => *old = entry.clone(),
            }
        }
        Ok(())
    }

    /// What stands at `path`.
    pub(crate) fn find(&self, path: &[String]) -> Option<&Self> {
        let Some((step, rest)) = path.split_first() else { return Some(self) };
        let child = match &self.content {
            Content::Table(table) => table.get(step),
            Content::List(items) => items
                .iter()
                .enumerate()
                .find(|(i, e)| e.name_in_list(*i) == *step)
                .map(|(_, e)| e)
                .or_else(|| items.get(step.parse::<usize>().ok()?)),
            Content::Scalar(_) | Content::Date(_) => None,
        };
        child?.find(rest)
    }
}

/// As TOML on one line.
impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::Scalar(written) => f.write_str(&scalar_text(written)),
            Content::Date(date) => f.write_str(date),
            Content::List(items) => {
                let items: Vec<String> = items.iter().map(Self::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Content::Table(table) => {
                let entries: Vec<String> =
                    table.entries.iter().map(|e| format!("{} = {}", e.key, e.item)).collect();
                write!(f, "{{ {} }}", entries.join(", "))
            }
        }
    }
}

/// A scalar as TOML.
pub(crate) fn scalar_text(written: &Written) -> String {
    match written {
        Written::Text(text) => toml::Value::from(text.as_str()).to_string(),
        Written::Float(x) => format!("{x:?}"),
        Written::Integer(_) | Written::Bool(_) => written.to_string(),
    }
}

/// The steps of a dotted path; a step with a dot in it is quoted as in TOML.
///
/// # Errors
/// When the text is not a dotted path.
pub(crate) fn split_path(path: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("`{path}` is not a dotted path of keys, such as `flows.uploads.count`");
    if path.contains(['\n', '\r', '#', '=']) {
        return Err(wrong());
    }
    let line = format!("{path} = 0");
    let document = DeTable::parse(&line).map_err(|_| wrong())?;
    let mut table = document.get_ref();
    let mut steps = Vec::new();
    while let Some((key, value)) = table.iter().next() {
        steps.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    if steps.is_empty() { Err(wrong()) } else { Ok(steps) }
}

/// Reads a file's text.
///
/// # Errors
/// Every place where the text is not TOML.
pub(crate) fn read_file(file: &str, text: &str) -> Result<Item, Vec<Error>> {
    let lines = Lines::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let error = |e: &toml::de::Error| {
            let place = lines.place(e.span().map_or(0, |s| s.start));
            Error::at(file, &place, "", format!("not TOML: {}", e.message()))
        };
        return Err(errors.iter().map(error).collect());
    }
    let mut errors = Vec::new();
    let mut reading = Reading { place: &|offset| lines.place(offset), text, file, errors: &mut errors };
    let table = reading.table(document.get_ref());
    if errors.is_empty() {
        Ok(Item { content: Content::Table(table), place: Place::start() })
    } else {
        Err(errors)
    }
}

/// Reads the text of a file that another one includes.
///
/// # Errors
/// Every place where the text is not TOML.
pub(crate) fn read_included(file: &str, text: &str) -> Result<Item, Vec<Error>> {
    Ok(read_file(file, text)?.by(&Source::Include(file.into())))
}

/// Reads the value of a command-line option: TOML, or a bare text such as `5mbit`.
///
/// # Errors
/// When the text starts like a list, table or quoted text and is not one, or is a number too large.
pub(crate) fn read_word(word: &str, place: &Place) -> Result<Item, Vec<Error>> {
    let bare = Item { content: Content::Scalar(Written::Text(word.to_owned())), place: place.clone() };
    let value = match DeValue::parse(word) {
        Ok(value) => value,
        Err(error) if word.trim_start().starts_with(['"', '\'', '[', '{']) => {
            let message = format!("not TOML: {}", error.message());
            return Err(vec![Error::at("", place, "", message)]);
        }
        Err(_) => return Ok(bare),
    };
    let mut errors = Vec::new();
    let item = Reading { place: &|_| place.clone(), text: word, file: "", errors: &mut errors }
        .value(value.get_ref(), place.clone());
    match item.content {
        Content::Date(_) => Ok(bare),
        _ if errors.is_empty() => Ok(item),
        _ => Err(errors),
    }
}

struct Reading<'a> {
    place: &'a dyn Fn(usize) -> Place,
    text: &'a str,
    file: &'a str,
    errors: &'a mut Vec<Error>,
}

impl Reading<'_> {
    fn item(&mut self, value: &Spanned<DeValue<'_>>) -> Item {
        let start = value.span().start;
        let mut item = self.value(value.get_ref(), (self.place)(start));
        if let Content::Table(table) = &mut item.content {
            // Others begin with a brace, or with the bracket of their header.
            table.is_dotted = self.text.get(start..).is_some_and(|rest| !rest.starts_with(['{', '[']));
        }
        item
    }

    fn value(&mut self, value: &DeValue<'_>, place: Place) -> Item {
        let mut number = |n: Option<Written>| {
            n.unwrap_or_else(|| {
                self.errors.push(Error::at(
                    self.file,
                    &place,
                    "",
                    "a number that does not fit into 64 bits: at most 9223372036854775807",
                ));
                Written::Integer(0)
            })
        };
        let content = match value {
            DeValue::String(text) => Content::Scalar(Written::Text(text.to_string())),
            DeValue::Integer(n) => {
                Content::Scalar(number(i64::from_str_radix(n.as_str(), n.radix()).ok().map(Written::Integer)))
            }
            DeValue::Float(x) => Content::Scalar(number(x.as_str().parse().ok().map(Written::Float))),
            DeValue::Boolean(b) => Content::Scalar(Written::Bool(*b)),
            DeValue::Datetime(date) => Content::Date(date.to_string()),
            DeValue::Array(items) => Content::List(items.iter().map(|i| self.item(i)).collect()),
            DeValue::Table(table) => Content::Table(self.table(table)),
        };
        Item { content, place }
    }

    fn table(&mut self, table: &DeTable<'_>) -> Table {
        let mut spans: Vec<_> = table.iter().collect();
        spans.sort_by_key(|(key, _)| key.span().start);
        let mut entries = Vec::new();
        for (key, value) in spans {
            let place = (self.place)(key.span().start);
            entries.push(Entry { key: key.get_ref().to_string(), place, item: self.item(value) });
        }
        Table { entries, is_dotted: false }
    }
}

/// Where the lines of a text start.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let starts = core::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset).saturating_sub(1);
        let before = self.text.get(self.starts[line]..offset).unwrap_or("");
        Place { line: line as u32 + 1, column: before.chars().count() as u32 + 1, source: Source::File }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> Item {
        read_file("f", text).expect("valid TOML")
    }

    fn path(text: &str) -> Vec<String> {
        split_path(text).expect("a path")
    }

    #[test]
    fn places_count_characters_from_one() {
        let root = item("a = 1\n['größe']\n'ä' = \"x\"\n");
        let inner = root.find(&path("'größe'.'ä'")).expect("there");
        assert_eq!((inner.place.line, inner.place.column), (3, 7));
    }

    #[test]
    fn paths_lead_through_lists_by_name_ends_and_position() {
        let root = item(
            "[[flows]]\nname = 'up'\ncount = 3\n[[links]]\nends = ['a', 'b']\nrate = '1mbit'\n[[links]]\n",
        );
        let label = |p: &str| root.find(&path(p)).map(Item::label);
        assert_eq!(label("flows.up.count"), Some("3".to_owned()));
        assert_eq!(label("flows.0.count"), Some("3".to_owned()));
        assert_eq!(label("links.a-b.rate"), Some("1mbit".to_owned()));
        assert_eq!(label("links.2.rate"), None);
    }

    #[test]
    fn tables_merge_and_values_replace() {
        let mut root =
            item("[schemes.bas]\nalpha = 0.4\nbeta = 0.8\n[[flows]]\nname = 'up'\nqueue = '5pkt'\n");
        let change = item(
            "schemes = { bas.alpha = 0.5 }\nflows.up.queue = { discipline = 'fifo' }\n'run.sample' = '1s'",
        );
        root.assign(&[], &Place::start(), &change).expect("fits");
        assert_eq!(
            root.to_string(),
            "{ schemes = { bas = { alpha = 0.5, beta = 0.8 } }, flows = [{ name = \"up\", queue = \
             { discipline = \"fifo\" } }], run = { sample = \"1s\" } }"
        );
        let queue = |change: &str| {
            let mut root = item("[link]\nqueue = { discipline = 'fifo', limit = '80pkt' }\n");
            root.assign(&[], &Place::start(), &item(change)).expect("fits");
            root.find(&path("link.queue")).map(Item::to_string).unwrap_or_default()
        };
        for one in ["link.queue.discipline = 'codel'", "'link.queue.discipline' = 'codel'"] {
            assert_eq!(queue(one), "{ discipline = \"codel\", limit = \"80pkt\" }", "{one}");
            assert_eq!(queue(&format!("link = {{ {} }}", &one.replace("link.", ""))), queue(one), "{one}");
        }
        for whole in ["link.queue = { discipline = 'codel' }", "[link.queue]\ndiscipline = 'codel'"] {
            assert_eq!(queue(whole), "{ discipline = \"codel\" }", "{whole}");
        }
        let place = Place::start();
        let wrong = root.assign(&path("flows.down.count"), &place, &change).expect_err("no such element");
        assert_eq!(wrong.1, "`flows` has no element `down`; it has up");
        let wrong = root.assign(&path("run.sample.x"), &place, &change).expect_err("not a table");
        assert_eq!(wrong.1, "`run.sample` is the value \"1s\", not a table");
    }

    #[test]
    fn words_of_the_command_line_need_no_quotes() {
        let place = Place::flag("--set x=1");
        let word = |w: &str| read_word(w, &place).map(|i| i.to_string()).map_err(|e| e[0].to_string());
        assert_eq!(word("5mbit"), Ok("\"5mbit\"".to_owned()));
        assert_eq!(word("4"), Ok("4".to_owned()));
        assert_eq!(word("['a', 'b']"), Ok("[\"a\", \"b\"]".to_owned()));
        assert!(word("[4").unwrap_err().starts_with("--set x=1: error: not TOML: "));
    }
}

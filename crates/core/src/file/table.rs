//! The tables of a file as data.

use crate::params::Key;

/// A table of a file.
#[derive(Debug)]
pub(crate) struct TableDef {
    /// As in the file: `[run]`, `[[flows]]`.
    pub(crate) header: &'static str,
    /// What it is, in one line.
    pub(crate) doc: &'static str,
    /// Its keys; those of a [`Selector`] come on top.
    pub(crate) keys: &'static [&'static [Key]],
    /// A key whose value decides which further keys there are.
    pub(crate) selector: Option<Selector>,
    /// What the keys of kind [`Kind::Nested`](crate::params::Kind::Nested) hold.
    pub(crate) nested: &'static [(&'static str, Shape)],
}

/// A key whose value decides which further keys a table has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selector {
    /// One of the table's keys, a [`Kind::Choice`](crate::params::Kind::Choice).
    pub(crate) key: &'static str,
    /// The choices and their keys.
    pub(crate) choices: &'static [(&'static str, &'static [Key])],
}

/// What a key of kind [`Kind::Nested`](crate::params::Kind::Nested) holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// One table.
    Table(&'static TableDef),
    /// A list of tables.
    Tables(&'static TableDef),
    /// A queue: a limit, or a table with the name of a discipline and its parameters.
    Queue,
    /// Dotted keys with any values.
    Overrides,
    /// A list of any values.
    Values,
    /// Any value.
    Value,
    /// The name of a sweep and one of its values.
    Point,
    /// A list of numbers.
    Numbers,
    /// A list of code points: numbers from 0 to 63, or names.
    CodePoints,
}

impl TableDef {
    /// The keys for a choice of the selector; all keys when `choice` is none.
    pub(crate) fn keys_for(&self, choice: Option<&str>) -> Vec<&'static Key> {
        let mut keys: Vec<&Key> = self.keys.iter().copied().flatten().collect();
        for (name, more) in self.selector.iter().flat_map(|s| s.choices) {
            if choice.is_none_or(|choice| choice == *name) {
                keys.extend(
                    more.iter().filter(|k| !keys.iter().any(|have| have.name == k.name)).collect::<Vec<_>>(),
                );
            }
        }
        keys
    }

    /// What a nested key holds.
    pub(crate) fn shape(&self, key: &str) -> Option<Shape> {
        self.nested.iter().find(|(name, _)| *name == key).map(|(_, shape)| *shape)
    }
}

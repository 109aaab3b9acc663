//! Parameters as data: one list of keys per table of a file gives parsing, defaults, errors, the JSON Schema,
//! `explain` and the documentation.

use serde::Serialize;

use crate::rng::SpanDraw;
use crate::span_cdf::SpanCdf;
use crate::time::Span;
use crate::units::{Bytes, Dimension, QuantityError, Rate, parse_quantity};

/// A key that a table may have.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name as written.
    pub name: &'static str,
    /// Its name in the version before, which is still read.
    pub former: Option<&'static str>,
    /// What values it takes.
    pub kind: Kind,
    /// Default as written in a file; none: the key is required or its absence has a meaning of its own.
    pub default: Option<&'static str>,
    /// True when a file must give it.
    pub required: bool,
    /// What it means, in one line.
    pub doc: &'static str,
    /// Where the default comes from.
    pub origin: &'static str,
}

impl Key {
    /// A key with a default and where the default comes from.
    pub const fn new(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        doc: &'static str,
        origin: &'static str,
    ) -> Self {
        Self { name, former: None, kind, default: Some(default), required: false, doc, origin }
    }

    /// A key that must be given.
    pub const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, former: None, kind, default: None, required: true, doc, origin: "" }
    }

    /// A key that may be absent; `doc` says what that means.
    pub const fn optional(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, former: None, kind, default: None, required: false, doc, origin: "" }
    }

    /// The same key, which had another name in the version before.
    #[must_use]
    pub const fn formerly(self, name: &'static str) -> Self {
        Self { former: Some(name), ..self }
    }

    /// True when a file of this version or the one before may call it so.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.former == Some(name)
    }
}

/// A [`Key`]: what it means, its name and kind, then `required`, `optional` or its default and where that is from.
macro_rules! key {
    ($(#[doc = $doc:literal])+ $name:literal: $kind:expr, default $default:expr $(, from $origin:literal)?) => {
        $crate::params::Key::new($name, $kind, $default, concat!($($doc),+).trim_ascii(), concat!($($origin)?))
    };
    ($(#[doc = $doc:literal])+ $name:literal: $kind:expr, $need:ident $(, formerly $former:literal)?) => {
        $crate::params::Key::$need($name, $kind, concat!($($doc),+).trim_ascii())$(.formerly($former))?
    };
}

/// A list of keys, each as [`key!`] has it, or `..` and a key that stands elsewhere.
macro_rules! keys {
    ($(
        $(..$($elsewhere:ident)::+ $([$place:literal])?)?
        $($(#[doc = $doc:literal])+ $name:literal: $kind:expr, $need:ident $($default:expr)?
            $(, from $origin:literal)? $(, formerly $former:literal)?)?
    ;)+) => {
        &[$(
            $($($elsewhere)::+ $([$place])?)?
            $($crate::params::key! {
                $(#[doc = $doc])+ $name: $kind, $need $($default)? $(, from $origin)? $(, formerly $former)?
            })?
        ),+]
    };
}

pub(crate) use {key, keys};

/// The values that a key takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// A quantity with a unit.
    Quantity(Dimension),
    /// A queue limit: packets, bytes or `unlimited`.
    Limit,
    /// A queue limit that is one: packets or bytes.
    Bounded,
    /// A span, or `uniform(a, b)`, `normal(mean, sd)`, `exponential(mean)`, or `cdf(a share, b share, ...)`.
    Draw,
    /// A whole number in [min, max].
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// A number in [min, max].
    Float {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// `true` or `false`.
    Bool,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// A list of texts, or one text.
    TextList,
    /// Names of files, or of what ships with the entry; a name with a dot is a file.
    Files,
    /// A list of whole numbers from 1.
    IntegerList,
    /// A table or list of tables that the caller reads.
    Nested,
}

/// The words of a key and what each stands for, as one list that `choice!` writes.
pub trait Choice: Copy + Eq + 'static {
    /// The kind of a key that takes these words.
    const KIND: Kind;
    /// Each word and its value.
    const WORDS: &'static [(&'static str, Self)];

    /// The value of a word that [`Kind::parse`] has let pass.
    ///
    /// # Panics
    /// For any other word: the key is of another kind, a bug in the caller.
    fn of(word: &str) -> Self {
        let known = Self::WORDS.iter().find(|(known, _)| *known == word);
        known.unwrap_or_else(|| panic!("\"{word}\" is not {}", Self::KIND.allowed())).1
    }

    /// The word of this value; empty when it has none.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

/// Enums with a word per value, as [`Choice`]; a value without a word cannot be written.
macro_rules! choice {
    ($($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $value:ident $(= $word:literal)?),+ $(,)?
    })+) => {$(
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $(#[$meta])*
        $vis enum $name { $($(#[$doc])* $value),+ }

        impl $crate::params::Choice for $name {
            const KIND: $crate::params::Kind = $crate::params::Kind::Choice(&[$($($word,)?)+]);
            const WORDS: &'static [(&'static str, Self)] = &[$($(($word, Self::$value),)?)+];
        }
    )+};
}

pub(crate) use choice;

impl Kind {
    /// What may be written, for messages.
    pub fn allowed(self) -> String {
        match self {
            Self::Quantity(dimension) => dimension.example().to_owned(),
            Self::Limit => "\"200pkt\", \"64KiB\" or \"unlimited\"".to_owned(),
            Self::Bounded => "\"200pkt\" or \"64KiB\"".to_owned(),
            Self::Draw => {
                "a time such as \"25ms\", \"uniform(2ms, 6ms)\", \"normal(20ms, 2ms)\", \"exponential(15s)\", or \"cdf(10us 0.5, 20us 0.9, 1ms 1)\""
                    .to_owned()
            }
            Self::Integer { min, max } if max == i64::MAX => format!("a whole number of at least {min}"),
            Self::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Self::Float { min, max } if max == f64::INFINITY => format!("a number of at least {min}"),
            Self::Float { min, max } => format!("a number from {min} to {max}"),
            Self::Bool => "true or false".to_owned(),
            Self::Choice(words) => {
                let quoted: Vec<String> = words.iter().map(|w| format!("\"{w}\"")).collect();
                match quoted.split_last() {
                    Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
                    _ => quoted.join(""),
                }
            }
            Self::Text => "a text".to_owned(),
            Self::TextList => "a text or a list of texts".to_owned(),
            Self::Files => "a name or a list of names, of files or of what ships".to_owned(),
            Self::IntegerList => "a list of whole numbers from 1".to_owned(),
            Self::Nested => "a table".to_owned(),
        }
    }

    /// Reads a text or number as written.
    ///
    /// # Errors
    /// When the value is not of this kind or outside its range.
    pub fn parse(self, written: &Written) -> Result<Value, Misfit> {
        match (self, written) {
            (Self::Quantity(dimension), Written::Text(text)) => {
                let amount = parse_quantity(text, dimension)?;
                Ok(match dimension {
                    Dimension::Rate => Value::Rate(Rate::from_bits_per_sec(amount)),
                    Dimension::Span => Value::Span(Span::from_nanos(amount)),
                    Dimension::Bytes => Value::Bytes(Bytes::new(amount)),
                    Dimension::Packets => Value::Integer(i64::try_from(amount).map_err(|_| TOO_LARGE)?),
                })
            }
            (
                Self::Quantity(_) | Self::Limit | Self::Bounded | Self::Draw,
                Written::Integer(_) | Written::Float(_),
            ) => Err(QuantityError::NoUnit.into()),
            (Self::Limit, Written::Text(text)) => parse_limit(text).map(Value::Limit),
            (Self::Bounded, Written::Text(text)) => match parse_limit(text)? {
                Limit::Unlimited => Err(Misfit::Kind(self)),
                limit => Ok(Value::Limit(limit)),
            },
            (Self::Draw, Written::Text(text)) => parse_draw(text).map(Value::Draw),
            (Self::Integer { min, max }, Written::Integer(n)) if (min..=max).contains(n) => {
                Ok(Value::Integer(*n))
            }
            (Self::Float { min, max }, Written::Float(x)) if *x >= min && *x <= max => Ok(Value::Float(*x)),
            (Self::Float { min, max }, Written::Integer(n)) if *n as f64 >= min && *n as f64 <= max => {
                Ok(Value::Float(*n as f64))
            }
            (Self::Bool, Written::Bool(b)) => Ok(Value::Bool(*b)),
            (Self::Choice(words), Written::Text(text)) if words.contains(&text.as_str()) => {
                Ok(Value::Text(text.clone()))
            }
            (Self::Text, Written::Text(text)) => Ok(Value::Text(text.clone())),
            (Self::TextList, Written::Text(text)) => Ok(Value::List(vec![text.clone()])),
            _ => Err(Misfit::Kind(self)),
        }
    }
}

/// What is wrong with a value, as the rest of "`value` ...".
#[derive(Clone, PartialEq, Debug)]
pub enum Misfit {
    /// It is not of this kind, or outside its range.
    Kind(Kind),
    /// It is not a quantity.
    Quantity(QuantityError),
    /// Something else.
    Other(&'static str),
}

const TOO_LARGE: Misfit = Misfit::Other("is too large");

impl Misfit {
    /// True when the words say what to write instead.
    pub const fn says_what_to_write(&self) -> bool {
        matches!(self, Self::Kind(_) | Self::Quantity(QuantityError::UnknownUnit(_, Some(_))))
    }
}

impl From<QuantityError> for Misfit {
    fn from(error: QuantityError) -> Self {
        Self::Quantity(error)
    }
}

impl core::fmt::Display for Misfit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "is not {}", kind.allowed()),
            Self::Quantity(error) => error.fmt(f),
            Self::Other(why) => f.write_str(why),
        }
    }
}

fn parse_limit(text: &str) -> Result<Limit, Misfit> {
    if text.trim() == "unlimited" {
        return Ok(Limit::Unlimited);
    }
    match parse_quantity(text, Dimension::Packets) {
        Ok(packets) => u32::try_from(packets).map(Limit::Packets).map_err(|_| TOO_LARGE),
        Err(QuantityError::UnknownUnit(..)) => {
            Ok(Limit::Bytes(Bytes::new(parse_quantity(text, Dimension::Bytes)?)))
        }
        Err(e) => Err(e.into()),
    }
}

fn parse_draw(text: &str) -> Result<SpanDraw, Misfit> {
    let span = |s: &str| parse_quantity(s, Dimension::Span).map(Span::from_nanos).map_err(Misfit::from);
    let two = |arguments: &str, needs| {
        let (first, second) = arguments.split_once(',').ok_or(Misfit::Other(needs))?;
        Ok::<_, Misfit>((span(first)?, span(second)?))
    };
    let call = |name: &str| text.trim().strip_prefix(name)?.trim().strip_prefix('(')?.strip_suffix(')');
    if let Some(arguments) = call("uniform") {
        let (low, high) = two(arguments, "needs two times, as in \"uniform(2ms, 6ms)\"")?;
        if low > high {
            return Err(Misfit::Other("has its ends in the wrong order"));
        }
        return Ok(SpanDraw::Uniform { low, high });
    }
    if let Some(arguments) = call("normal") {
        let (mean, deviation) = two(arguments, "needs a mean and a deviation, as in \"normal(20ms, 2ms)\"")?;
        if deviation > mean {
            return Err(Misfit::Other(
                "has a deviation above its mean, with too many draws below zero; its deviation is at most its mean",
            ));
        }
        return Ok(SpanDraw::Normal { mean, deviation });
    }
    if let Some(arguments) = call("cdf") {
        let points = arguments.split(',').map(|written| {
            let point = written.trim().split_once(char::is_whitespace);
            let (time, share) = point.and_then(|(time, share)| Some((time, share.trim().parse().ok()?))).ok_or(
                Misfit::Other("needs a time and the share up to it at each point, as in \"cdf(10us 0.5, 20us 0.9, 1ms 1)\""),
            )?;
            Ok((span(time)?, share))
        });
        let points = points.collect::<Result<Vec<_>, Misfit>>()?;
        return SpanCdf::new(&points).map(|points| SpanDraw::Cdf { points }).map_err(Misfit::Other);
    }
    if let Some(mean) = call("exponential") {
        return Ok(SpanDraw::Exponential { mean: span(mean)? });
    }
    if text.contains('(') && !text.trim().ends_with(')') {
        return Err(Misfit::Other("has no bracket at its end"));
    }
    span(text).map(SpanDraw::fixed)
}

/// A scalar as it stands in a file or on the command line.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Written {
    /// Text.
    Text(String),
    /// Whole number.
    Integer(i64),
    /// Number with a point.
    Float(f64),
    /// Truth value.
    Bool(bool),
}

impl Written {
    /// Reads a bare word as it is written in a default or on the command line: a number, a truth value, or text.
    pub fn from_word(word: &str) -> Self {
        if let Ok(n) = word.parse() {
            Self::Integer(n)
        } else if let Ok(b) = word.parse() {
            Self::Bool(b)
        } else if let Some(x) = word.parse::<f64>().ok().filter(|x| x.is_finite()) {
            Self::Float(x)
        } else {
            Self::Text(word.to_owned())
        }
    }
}

impl core::fmt::Display for Written {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Integer(n) => write!(f, "{n}"),
            Self::Float(x) => write!(f, "{x}"),
            Self::Bool(b) => write!(f, "{b}"),
        }
    }
}

/// A typed value.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Bit rate in bit/s.
    Rate(Rate),
    /// Span in ns.
    Span(Span),
    /// Bytes.
    Bytes(Bytes),
    /// Queue limit.
    Limit(Limit),
    /// Drawn span.
    Draw(SpanDraw),
    /// Whole number (packets too).
    Integer(i64),
    /// Number.
    Float(f64),
    /// Truth value.
    Bool(bool),
    /// Word or text.
    Text(String),
    /// Texts.
    List(Vec<String>),
    /// Tables, each with its own keys.
    Tables(Vec<Params>),
    /// Files.
    Files(Vec<NamedText>),
}

/// A file that was named, with its text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NamedText {
    /// Name as written.
    pub name: String,
    /// Its text; none: it is the name of something that ships.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A queue's capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// So many packets waiting.
    Packets(u32),
    /// So many bytes waiting.
    Bytes(Bytes),
    /// No limit.
    Unlimited,
}

impl core::fmt::Display for Limit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Packets(n) => write!(f, "{n}pkt"),
            Self::Bytes(b) => write!(f, "{b}"),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// Valid parameters of a registry entry, one value per key that has one, in the order of the entry's keys.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Params(Vec<(&'static str, Value)>);

impl Serialize for Params {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(k, v)| (k, v)))
    }
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $variant:ident($type:ty),)+) => {$(
        $(#[$doc])*
        /// # Panics
        /// When the entry has no such key: a bug of the entry, found by the registry test.
        pub fn $name(&self, key: &str) -> $type {
            match self.get(key) {
                Some(Value::$variant(value)) => value.clone(),
                other => panic!("parameter {key} is {other:?}, not {}", stringify!($variant)),
            }
        }
    )+};
}

impl Params {
    /// Parameters as read; the reader has checked them against `keys`.
    pub fn new(values: Vec<(&'static str, Value)>) -> Self {
        Self(values)
    }

    /// The defaults of `keys`.
    ///
    /// # Panics
    /// When a default is not a value of its own key: a bug of the entry.
    pub fn defaults(keys: &[Key]) -> Self {
        let parse = |key: &Key| {
            let written = Written::from_word(key.default?);
            let value = key.kind.parse(&written).unwrap_or_else(|e| panic!("default of {}: {e}", key.name));
            Some((key.name, value))
        };
        Self(keys.iter().filter_map(parse).collect())
    }

    /// The value of `key`, when it has one.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// What `read` finds at `key`, when that has a value: `params.optional("ceil", Params::rate)`.
    pub fn optional<T>(&self, key: &str, read: impl FnOnce(&Self, &str) -> T) -> Option<T> {
        self.get(key).map(|_| read(self, key))
    }

    /// Replaces or adds a value.
    pub fn set(&mut self, key: &'static str, value: Value) {
        match self.0.iter_mut().find(|(name, _)| *name == key) {
            Some(entry) => entry.1 = value,
            None => self.0.push((key, value)),
        }
    }

    getters! {
        /// A rate.
        rate: Rate(Rate),
        /// A span.
        span: Span(Span),
        /// A number of bytes.
        bytes: Bytes(Bytes),
        /// A queue limit.
        limit: Limit(Limit),
        /// A drawn span.
        draw: Draw(SpanDraw),
        /// A whole number, or a number of packets.
        integer: Integer(i64),
        /// A number.
        float: Float(f64),
        /// A truth value.
        bool: Bool(bool),
        /// A word or text.
        text: Text(String),
        /// A list of texts.
        list: List(Vec<String>),
        /// Files.
        files: Files(Vec<NamedText>),
        /// A list of tables.
        tables: Tables(Vec<Self>),
    }

    /// What the word at `key` stands for.
    ///
    /// # Panics
    /// When the entry has no such key, or its words are others: a bug of the entry.
    pub fn choice<T: Choice>(&self, key: &str) -> T {
        T::of(&self.text(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_and_limits_parse() {
        let draw = |s: &str| Kind::Draw.parse(&Written::Text(s.to_owned()));
        assert_eq!(
            draw("uniform(2ms, 6ms)"),
            Ok(Value::Draw(SpanDraw::Uniform { low: Span::from_millis(2), high: Span::from_millis(6) }))
        );
        assert_eq!(
            draw("exponential(15s)"),
            Ok(Value::Draw(SpanDraw::Exponential { mean: Span::from_secs(15) }))
        );
        assert_eq!(
            draw("normal(20ms, 2ms)"),
            Ok(Value::Draw(SpanDraw::Normal {
                mean: Span::from_millis(20),
                deviation: Span::from_millis(2)
            }))
        );
        assert!(draw("normal(2ms, 2ms)").is_ok());
        assert!(draw("normal(2ms, 3ms)").unwrap_err().to_string().contains("above its mean"));
        assert!(draw("normal(2ms)").unwrap_err().to_string().contains("needs a mean"));
        let points = SpanCdf::new(&[(Span::from_micros(10), 0.5), (Span::from_millis(1), 1.0)]).unwrap();
        assert_eq!(draw("cdf(10us 0.5, 1ms  1)"), Ok(Value::Draw(SpanDraw::Cdf { points })));
        for (text, why) in [
            ("cdf()", "needs a time and the share"),
            ("cdf(10us)", "needs a time and the share"),
            ("cdf(10us half)", "needs a time and the share"),
            ("cdf(10us 0.5)", "end at the share 1"),
            ("cdf(10 1)", "unit"),
        ] {
            let said = draw(text).unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
        assert_eq!(draw("cdf(10us 0.5, 1ms 1"), Err(Misfit::Other("has no bracket at its end")));
        assert_eq!(draw("1ms"), Ok(Value::Draw(SpanDraw::fixed(Span::from_millis(1)))));
        assert!(draw("uniform(6ms, 2ms)").unwrap_err().to_string().contains("wrong order"));
        let limit = |s: &str| Kind::Limit.parse(&Written::Text(s.to_owned()));
        assert_eq!(limit("200pkt"), Ok(Value::Limit(Limit::Packets(200))));
        assert_eq!(limit("64KiB"), Ok(Value::Limit(Limit::Bytes(Bytes::new(65_536)))));
        assert_eq!(limit("unlimited"), Ok(Value::Limit(Limit::Unlimited)));
        let bounded = |s: &str| Kind::Bounded.parse(&Written::Text(s.to_owned()));
        assert_eq!(bounded("200pkt"), limit("200pkt"));
        assert_eq!(
            bounded("unlimited").map_err(|why| why.to_string()),
            Err("is not \"200pkt\" or \"64KiB\"".to_owned())
        );
    }

    #[test]
    fn numbers_need_units_where_the_key_has_a_dimension() {
        let kind = Kind::Quantity(Dimension::Rate);
        assert_eq!(kind.parse(&Written::Integer(5)), Err(QuantityError::NoUnit.into()));
        let kind = Kind::Float { min: 0.0, max: 1.0 };
        assert_eq!(kind.parse(&Written::Integer(1)), Ok(Value::Float(1.0)));
        assert_eq!(kind.parse(&Written::Float(1.5)), Err(Misfit::Kind(kind)));
    }
}

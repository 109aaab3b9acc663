//! Queues: a limit, or a discipline with its parameters.

use super::keys;
use super::sources::Reader;
use crate::file::{Content, Item, Layer, Section, Shape, joined, list, scalar_text, suggestion};
use crate::params::{Key, Kind, Limit, Misfit, Params, Value, Written};
use crate::qdisc::{self, QdiscDef, QueueConfig, htb};
use crate::units::Bytes;

const HOLDS_NOTHING: &str = "would lose every packet";
const LEAST: &str = "write at least \"1pkt\", or as many bytes as the largest packet has";

fn holds_nothing(limit: Limit) -> bool {
    matches!(limit, Limit::Packets(0) | Limit::Bytes(Bytes::ZERO))
}

impl Reader<'_> {
    /// The queue at `key`: a limit, or a discipline with its parameters.
    pub(super) fn queue(&mut self, section: &Section<'_>, key: &str) -> Option<QueueConfig> {
        let (item, place, key_path) = (section.item(key), section.place(key), section.key_path(key));
        let Some(table) = item.and_then(Item::table) else {
            let key_def = section.key(key);
            let default = Written::Text(key_def.default.unwrap_or("unlimited").to_owned());
            let written = match item.map(|i| &i.content) {
                None => &default,
                Some(Content::Scalar(written)) => written,
                Some(_) => &Written::Bool(false),
            };
            self.explain((&section.path, key), || Some(scalar_text(written)), item, key_def.origin);
            return match Kind::Limit.parse(written) {
                Ok(Value::Limit(limit)) if holds_nothing(limit) => {
                    self.fail_with(place, key_path, HOLDS_NOTHING, LEAST);
                    None
                }
                Ok(Value::Limit(limit)) => Some(qdisc::fifo::config(limit)),
                Ok(_) => None,
                Err(why) => {
                    let shown = item.map_or_else(|| scalar_text(written), Item::to_string);
                    let hint = "write \"200pkt\", \"64KiB\", \"unlimited\", or a table such as { discipline = \"fifo\", \
                                limit = \"200pkt\" }";
                    let why = match why {
                        Misfit::Kind(_) => "is not a queue".to_owned(),
                        Misfit::Quantity(_) | Misfit::Other(_) => why.to_string(),
                    };
                    self.fail_with(place, key_path, format!("{shown} {why}"), hint);
                    None
                }
            };
        };
        let layer = Layer { path: key_path.to_owned(), place: place.clone(), table: Some(table) };
        let names: Vec<&str> = qdisc::registry::REGISTRY.iter().map(|d| d.name).collect();
        let Some(name) = table.get("discipline").and_then(Item::text) else {
            let place = table.get("discipline").map_or(&layer.place, |i| &i.place);
            let hint = format!("write the name of one: {}", list(&names));
            self.fail_with(place, &joined(&layer.path, "discipline"), "is missing or not a text", hint);
            return None;
        };
        let Some(discipline) = qdisc::registry::REGISTRY.iter().copied().find(|d| d.name == name) else {
            let place = table.get("discipline").map_or(&layer.place, |i| &i.place);
            let path = joined(&layer.path, "discipline");
            self.fail_with(place, &path, format!("unknown discipline \"{name}\""), suggestion(name, &names));
            return None;
        };
        self.discipline(discipline, &layer)
    }

    fn discipline(&mut self, discipline: &'static QdiscDef, layer: &Layer<'_>) -> Option<QueueConfig> {
        const NAME: &[Key] = &[Key::required("discipline", Kind::Text, "Name of the discipline")];
        let header = format!("a queue with discipline \"{}\"", discipline.name);
        let section = self.entry_section(&[NAME, discipline.keys], layer, &header);
        let errors_before = self.errors.len();
        let mut nested = Vec::new();
        let mut classes = Vec::new();
        for key in discipline.keys.iter().filter(|key| key.kind == Kind::Nested) {
            if section.item(key.name).is_none() {
                continue;
            }
            match keys::shape_in_queue(discipline.name, key.name) {
                Some(Shape::CodePoints) => {
                    let names = self.code_points(&section, key.name);
                    nested.extend(names.map(|names| (key.name, Value::List(names))));
                }
                Some(Shape::Tables(def)) => {
                    classes = self.tables(&section, key.name).iter().map(|l| self.section(def, l)).collect();
                    let tables = self.queue_classes(&classes);
                    nested.push((key.name, Value::Tables(tables)));
                }
                _ => {}
            }
        }
        if self.errors.len() > errors_before {
            return None;
        }
        let mut params = section.params(discipline.keys)?;
        let has_limit = discipline.keys.iter().any(|key| key.name == "limit");
        if has_limit && params.optional("limit", Params::limit).is_some_and(holds_nothing) {
            self.fail_key_with(&section, "limit", HOLDS_NOTHING, LEAST);
            return None;
        }
        for (key, value) in nested {
            params.set(key, value);
        }
        if *discipline == htb::DEF
            && let Err(htb::Misfit { class: Some(at), key, why }) = htb::check(&params)
        {
            self.fail_key(&classes[at], key, why);
            return None;
        }
        if let Err((key, why)) = (discipline.check)(&params) {
            self.fail_key(&section, key, why);
            return None;
        }
        Some(QueueConfig { discipline, params })
    }

    /// The parameters of a queue's classes.
    fn queue_classes(&mut self, classes: &[Section<'_>]) -> Vec<Params> {
        let names: Vec<_> = classes.iter().filter_map(|class| class.name_entry("name")).collect();
        self.unique(&names);
        let mut all = Vec::new();
        for class in classes {
            let _ = self.name(class, "name");
            let code_points = class.item("dscp").map(|_| self.code_points(class, "dscp"));
            let Some(mut params) = class.params(htb::CLASS_KEYS) else { continue };
            if let Some(names) = code_points.flatten() {
                params.set("dscp", Value::List(names));
            }
            all.push(params);
        }
        all
    }
}

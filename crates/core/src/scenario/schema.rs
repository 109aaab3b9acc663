//! JSON Schema of scenario files, for editors, from the same key lists that read them.

use serde_json::{Map, Value as Json, json};

use super::keys::{FILE, SCHEME_ENABLED, shape_in_queue};
use crate::file::{Shape, TableDef};
use crate::params::{Key, Kind, Written};
use crate::qdisc;
use crate::scheme::SchemeDef;
use crate::span_cdf::MOST_POINTS;
use crate::units::Dimension;

/// The schema (draft 2020-12).
pub(super) fn build(schemes: &[&SchemeDef]) -> Json {
    let mut schema = Map::new();
    schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".to_owned(), json!("bandmaster scenario"));
    schema.extend(table(&FILE));
    schema["properties"]["version"] = json!({ "const": 1, "description": "Version of the file format" });
    let mut of_schemes = schemes_of(schemes);
    of_schemes["description"] = schema["properties"]["schemes"]["description"].clone();
    schema["properties"]["schemes"] = of_schemes;
    if let Some(Json::Array(required)) = schema.get_mut("required") {
        required.insert(0, json!("version"));
    }
    Json::Object(schema)
}

/// The same for files that may include others, from which they have what they lack, also of their tables.
pub(super) fn with_includes(mut schema: Json) -> Json {
    let take = |table: &mut Json| table.as_object_mut().and_then(|table| table.remove("required"));
    let needed = take(&mut schema).unwrap_or_default();
    let mut tables = Map::new();
    for (name, property) in schema["properties"].as_object_mut().into_iter().flatten() {
        tables.extend(take(property).map(|needed| (name.clone(), json!({ "required": needed }))));
    }
    let alone = json!({ "required": needed, "properties": tables });
    schema["anyOf"] = json!([alone, { "required": ["version", "include"] }]);
    schema
}

fn table(def: &'static TableDef) -> Map<String, Json> {
    let keys = def.keys_for(None);
    // A key that only some choices of the selector know is never required of all.
    let always = |name: &str| def.keys.iter().copied().flatten().any(|k| k.name == name);
    // Choices of the selector may give a key of the same name another kind; their rules say which.
    let choices = || def.selector.iter().flat_map(|selector| selector.choices).flat_map(|(_, own)| *own);
    let differs = |key: &Key| choices().any(|other| other.name == key.name && other.kind != key.kind);
    let property = |key: &Key| {
        let mut schema = described(key, def.shape(key.name));
        if differs(key)
            && let Some(schema) = schema.as_object_mut()
        {
            schema.retain(|word, _| ["description", "default"].contains(&word.as_str()));
        }
        (key.name.to_owned(), schema)
    };
    let properties = keys.iter().map(|key| property(key)).collect();
    let required = keys.iter().filter(|k| k.required && always(k.name)).map(|k| k.name).collect();
    let mut object = object(def.doc, properties, required);
    if let Some(selector) = def.selector {
        let default = keys.iter().find(|k| k.name == selector.key).and_then(|k| k.default);
        let rules = selector.choices.iter().map(|(choice, own)| {
            let required: Vec<&str> = own.iter().filter(|k| k.required).map(|k| k.name).collect();
            let foreign: Map<String, Json> = keys
                .iter()
                .filter(|k| !always(k.name) && !own.iter().any(|o| o.name == k.name))
                .map(|k| (k.name.to_owned(), json!(false)))
                .chain(own.iter().filter(|k| differs(k)).map(|k| (k.name.to_owned(), scalar(k.kind))))
                .collect();
            let mut condition = json!({ "properties": { selector.key: { "const": choice } } });
            if default != Some(choice) {
                condition["required"] = json!([selector.key]);
            }
            json!({ "if": condition, "then": { "required": required, "properties": foreign } })
        });
        object.insert("allOf".to_owned(), rules.collect());
    }
    object
}

fn object(doc: &str, properties: Map<String, Json>, required: Vec<&str>) -> Map<String, Json> {
    let mut object = Map::new();
    object.insert("type".to_owned(), json!("object"));
    object.insert("description".to_owned(), json!(doc));
    object.insert("properties".to_owned(), Json::Object(properties));
    if !required.is_empty() {
        object.insert("required".to_owned(), json!(required));
    }
    object.insert("additionalProperties".to_owned(), json!(false));
    object
}

fn described(key: &Key, shape: Option<Shape>) -> Json {
    let mut schema = shape.map_or_else(|| scalar(key.kind), shaped);
    let mut description = match key.origin {
        "" => key.doc.to_owned(),
        origin => format!("{} (default: {origin})", key.doc),
    };
    if let Some(former) = key.former {
        description += &format!(" (`{former}` in earlier files, which is read until the next version)");
    }
    schema["description"] = json!(description);
    if let Some(default) = key.default {
        schema["default"] = match key.kind {
            Kind::Text | Kind::TextList => json!(default),
            _ => json!(Written::from_word(default)),
        };
    }
    schema
}

fn shaped(shape: Shape) -> Json {
    match shape {
        Shape::Table(def) => Json::Object(table(def)),
        Shape::Tables(def) => json!({ "type": "array", "items": table(def) }),
        Shape::Queue => json!({ "anyOf": [scalar(Kind::Limit), queue_table()] }),
        Shape::Overrides => json!({ "type": "object" }),
        Shape::Values => json!({ "type": "array", "minItems": 1 }),
        // Those of schemes come with the registry.
        Shape::Value => json!({}),
        Shape::Point => json!({ "type": "object", "minProperties": 1, "maxProperties": 1 }),
        Shape::Numbers => json!({ "type": "array", "items": { "type": "number" } }),
        Shape::CodePoints => {
            let number = json!({ "type": "integer", "minimum": 0, "maximum": 63 });
            json!({ "type": "array", "items": { "anyOf": [number, { "type": "string" }] } })
        }
    }
}

fn entry_properties(keys: &[Key], shape: &dyn Fn(&str) -> Option<Shape>) -> Map<String, Json> {
    keys.iter().map(|key| (key.name.to_owned(), described(key, shape(key.name)))).collect()
}

fn queue_table() -> Json {
    let entries = qdisc::registry::REGISTRY.iter().map(|def| {
        let mut properties = entry_properties(def.keys, &|key| shape_in_queue(def.name, key));
        properties.insert("discipline".to_owned(), json!({ "const": def.name, "description": def.source }));
        let required = def.keys.iter().filter(|k| k.required).map(|k| k.name);
        Json::Object(object(def.about, properties, core::iter::once("discipline").chain(required).collect()))
    });
    json!({ "oneOf": entries.collect::<Vec<_>>() })
}

fn schemes_of(schemes: &[&SchemeDef]) -> Json {
    let entries = schemes.iter().map(|def| {
        let mut properties = entry_properties(SCHEME_ENABLED, &|_| None);
        properties.extend(entry_properties(def.keys, &|_| None));
        let required = def.keys.iter().filter(|k| k.required).map(|k| k.name).collect();
        (def.name.to_owned(), Json::Object(object(def.about, properties, required)))
    });
    Json::Object(object("", entries.collect(), Vec::new()))
}

fn scalar(kind: Kind) -> Json {
    match kind {
        Kind::Quantity(dimension) => {
            json!({ "type": "string", "pattern": format!("^{}$", quantity(dimension)) })
        }
        Kind::Limit => {
            let (packets, bytes) = (quantity(Dimension::Packets), quantity(Dimension::Bytes));
            json!({ "type": "string", "pattern": format!("^(unlimited|{packets}|{bytes})$") })
        }
        Kind::Bounded => {
            let (packets, bytes) = (quantity(Dimension::Packets), quantity(Dimension::Bytes));
            json!({ "type": "string", "pattern": format!("^({packets}|{bytes})$") })
        }
        Kind::Draw => {
            let span = quantity(Dimension::Span);
            let point = format!("{span} [-+.0-9eE]+ *");
            let most = MOST_POINTS - 1;
            let pattern = format!(
                "^({span}| *(uniform|normal) *\\({span},{span}\\) *| *exponential *\\({span}\\) *\
                 | *cdf *\\({point}(,{point}){{0,{most}}}\\) *)$"
            );
            json!({ "type": "string", "pattern": pattern })
        }
        Kind::Integer { min, max: i64::MAX } => json!({ "type": "integer", "minimum": min }),
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Float { min, max } => json!({ "type": "number", "minimum": min, "maximum": max }),
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::Text => json!({ "type": "string" }),
        Kind::TextList | Kind::Files => {
            json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
        }
        Kind::IntegerList => json!({ "type": "array", "items": { "type": "integer", "minimum": 1 } }),
        Kind::Nested => json!({}),
    }
}

fn quantity(dimension: Dimension) -> String {
    let units: Vec<&str> = dimension.units().iter().map(|(name, _)| *name).collect();
    format!(" *\\+?[0-9_]*\\.?[0-9_]* *({}) *", units.join("|"))
}

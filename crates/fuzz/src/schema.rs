//! Documents that a JSON Schema allows, or nearly.

use serde_json::{Map, Value, json};

use super::Source;

/// Keys of a scenario that say what is compared, not what is run.
const NOT_RUN: [&str; 8] =
    ["version", "name", "title", "description", "compare", "sweeps", "claims", "figures"];
/// Tables that may stand in another file as they are.
const TABLES: [&str; 7] = ["flows", "network", "schemes", "tcp", "control", "faults", "measure"];
const SPANS: [&str; 15] = [
    "0s",
    "1ns",
    "2ns",
    "1us",
    "10us",
    "1ms",
    "10ms",
    "100ms",
    "333ms",
    "1s",
    "10s",
    "60s",
    "1000s",
    "525600min",
    "1.5ms",
];
const DRAWS: [&str; 10] = [
    "uniform(0s, 0s)",
    "uniform(0s, 1s)",
    "uniform(1ns, 525600min)",
    "normal(1ms, 1ms)",
    "normal(1ns, 1s)",
    "normal(525600min, 525600min)",
    "exponential(0s)",
    "exponential(1ns)",
    "exponential(1ms)",
    "exponential(525600min)",
];
const RATES: [&str; 14] = [
    "0bit", "1bit", "8bit", "100bit", "1kbit", "10kbit", "1mbit", "10mbit", "100mbit", "1gbit", "100gbit",
    "1tbit", "100tbit", "1500kbit",
];
const PACKETS: [&str; 8] = ["0pkt", "1pkt", "2pkt", "3pkt", "10pkt", "100pkt", "1000000pkt", "1000000000pkt"];
const SIZES: [&str; 16] = [
    "0B",
    "1B",
    "2B",
    "13B",
    "40B",
    "100B",
    "536B",
    "1460B",
    "1500B",
    "9000B",
    "65535B",
    "65536B",
    "1MB",
    "4GiB",
    "1000GB",
    "1048576GiB",
];
const TEXTS: [&str; 25] = [
    "a",
    "x",
    "r1",
    "r2",
    "server",
    "clients",
    "h1",
    "x.trace",
    "abilene.graphml",
    "abilene.csv",
    "down.trace",
    "x.cdf",
    "web-search",
    "hadoop",
    "r1->r2",
    "opentcp1",
    "opentcp2",
    "window-cap.toml",
    "hosts",
    "senders",
    "receivers",
    "bottleneck",
    "sources",
    "distinct",
    "1mbit",
];

/// A JSON Schema, as far as scenario files use it.
pub struct Schema(pub Value);

impl Schema {
    /// Every key and every allowed word.
    pub fn words(&self) -> Vec<String> {
        fn walk(value: &Value, words: &mut Vec<String>) {
            match value {
                Value::Object(map) => {
                    for (key, value) in map {
                        match (key.as_str(), value) {
                            ("properties", Value::Object(keys)) => words.extend(keys.keys().cloned()),
                            ("enum", Value::Array(all)) => {
                                words.extend(
                                    all.iter().filter_map(Value::as_str).map(|word| format!("\"{word}\"")),
                                );
                            }
                            _ => {}
                        }
                        walk(value, words);
                    }
                }
                Value::Array(all) => all.iter().for_each(|value| walk(value, words)),
                _ => {}
            }
        }
        let mut words = Vec::new();
        walk(&self.0, &mut words);
        words
    }

    /// Sets or removes something of `document`, or takes a table of another one.
    pub fn change(&self, source: &mut Source, document: &mut Value, others: &[Value]) {
        if source.once_in(25) {
            let (other, key) = (source.pick(others), *source.pick(&TABLES));
            if let Some(table) = other.get(key) {
                document[key] = table.clone();
            }
            return;
        }
        step(source, document, &self.0, 0);
    }
}

/// The schemas that `schema` is put together from.
fn parts(schema: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|word| schema.get(word)?.as_array());
    let branches = ["then", "else"].into_iter().filter_map(|word| schema.get(word));
    lists.flatten().chain(branches)
}

fn keys(schema: &Value, found: &mut Vec<String>) {
    let own = schema.get("properties").and_then(Value::as_object);
    found.extend(own.into_iter().flat_map(Map::keys).cloned());
    parts(schema).for_each(|part| keys(part, found));
}

fn of_key<'a>(schema: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    found.extend(schema.get("properties").and_then(|keys| keys.get(key)));
    parts(schema).for_each(|part| of_key(part, key, found));
}

fn items(schema: &Value) -> Option<&Value> {
    schema.get("items").or_else(|| parts(schema).find_map(items))
}

fn step(source: &mut Source, document: &mut Value, schema: &Value, depth: usize) {
    match document {
        Value::Object(map) => change_table(source, map, schema, depth),
        Value::Array(list) => change_list(source, list, schema, depth),
        _ => {}
    }
}

fn change_table(source: &mut Source, map: &mut Map<String, Value>, schema: &Value, depth: usize) {
    let mut known = Vec::new();
    keys(schema, &mut known);
    known.sort();
    known.dedup();
    if depth == 0 {
        known.retain(|key| !NOT_RUN.contains(&key.as_str()));
    }
    let present: Vec<String> = map.keys().filter(|key| depth > 0 || known.contains(key)).cloned().collect();
    let stays = source.below(100) < if depth == 0 { 92 } else { 55 };
    let from = if !present.is_empty() && stays { &present } else { &known };
    if from.is_empty() {
        return;
    }
    let key = source.pick(from).clone();
    let mut schemas = Vec::new();
    of_key(schema, &key, &mut schemas);
    if schemas.is_empty() {
        return;
    }
    let schema = *source.pick(&schemas);
    let goes_deeper = source.below(10) > 0;
    match map.get_mut(&key) {
        Some(inner @ Value::Object(_)) if goes_deeper => step(source, inner, schema, depth + 1),
        Some(inner @ Value::Array(_)) if goes_deeper => step(source, inner, schema, depth + 1),
        Some(_) if source.once_in(12) => drop(map.remove(&key)),
        _ => {
            if let Some(new) = value(source, schema, 0) {
                map.insert(key, new);
            }
        }
    }
}

fn change_list(source: &mut Source, list: &mut Vec<Value>, schema: &Value, depth: usize) {
    let Some(items) = items(schema) else { return };
    if list.is_empty() {
        list.extend(value(source, items, 0));
        return;
    }
    let at = source.below(list.len());
    match source.below(12) {
        0 if list.len() > 1 => drop(list.remove(at)),
        1 => {
            let mut copy = list[at].clone();
            if let Some(name) = copy.get("name").and_then(Value::as_str).map(str::to_owned) {
                copy["name"] = format!("{name}{}", source.below(9)).into();
            }
            list.push(copy);
        }
        _ if list[at].is_object() => step(source, &mut list[at], items, depth + 1),
        _ => {
            if let Some(new) = value(source, items, 0) {
                list[at] = new;
            }
        }
    }
}

/// A value that the schema allows; sometimes one that is only of its type.
fn value(source: &mut Source, schema: &Value, depth: usize) -> Option<Value> {
    if let Some(only) = schema.get("const") {
        return Some(only.clone());
    }
    if let Some(Value::Array(all)) = schema.get("enum") {
        return Some(source.pick(all).clone());
    }
    for word in ["anyOf", "oneOf"] {
        if let Some(Value::Array(all)) = schema.get(word) {
            let one = source.pick(all);
            if schema.get("type").is_none() || one.get("type").is_some() {
                return value(source, one, depth);
            }
        }
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        let mut fit: Vec<&str> = Vec::new();
        for (mark, texts) in [
            ("ns|us", &SPANS[..]),
            ("uniform", &DRAWS),
            ("kbit", &RATES),
            ("pkt", &PACKETS),
            ("kB", &SIZES),
            ("unlimited", &["unlimited"]),
        ] {
            if pattern.contains(mark) {
                fit.extend(texts);
            }
        }
        if !fit.is_empty() {
            return Some((*source.pick(&fit)).into());
        }
    }
    match schema.get("type").and_then(Value::as_str)? {
        "boolean" => Some(source.once_in(2).into()),
        "integer" => {
            let least = schema.get("minimum").and_then(Value::as_i64).unwrap_or(i64::MIN);
            let most = schema.get("maximum").and_then(Value::as_i64).unwrap_or(i64::MAX);
            let all = [least, most, least.saturating_add(1), 3, 5, 10, 100, 1000, 65_535, most / 2];
            Some(source.pick(&all).clamp(&least, &most).to_owned().into())
        }
        "number" => {
            let least = schema.get("minimum").and_then(Value::as_f64).unwrap_or(-1e308);
            let most = schema.get("maximum").and_then(Value::as_f64).unwrap_or(1e308);
            let all = [least, most, 0.0, 0.5, 1.0, 1e-9, 1e9, 5e-324, least + 1e-12, most * 0.999_999, 0.1];
            Some(json!(source.pick(&all).clamp(least, most)))
        }
        "string" => Some((*source.pick(&TEXTS)).into()),
        "array" => {
            let inner = schema.get("items")?;
            let n = source.below(4);
            Some((0..n).filter_map(|_| value(source, inner, depth + 1)).collect())
        }
        "object" if depth < 4 => {
            let required = schema.get("required").and_then(Value::as_array);
            let required: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
            let mut map = Map::new();
            for (key, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                if required.contains(&key.as_str()) || source.once_in(6) {
                    map.extend(value(source, inner, depth + 1).map(|value| (key.clone(), value)));
                }
            }
            Some(Value::Object(map))
        }
        _ => None,
    }
}

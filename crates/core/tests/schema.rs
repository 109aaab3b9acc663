//! The JSON Schema accepts every scenario file of the repository and refuses what an editor should underline.

use std::fs;
use std::path::Path;

use bandmaster_core::scenario::{Options, json_schema};
use bandmaster_core::scheme::REGISTRY;
use serde_json::{Value, json};

fn example(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/examples").join(name);
    as_json(&fs::read_to_string(path).expect("an example"))
}

fn as_json(text: &str) -> Value {
    let table: toml::Table = text.parse().expect("valid TOML");
    serde_json::to_value(table).expect("TOML without dates is JSON")
}

#[test]
fn accepts_every_file() {
    let schema = jsonschema::draft202012::new(&json_schema(REGISTRY)).expect("a valid schema");
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the scenarios folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "toml") {
                let instance = as_json(&fs::read_to_string(&path).expect("a text"));
                let errors: Vec<String> =
                    schema.iter_errors(&instance).map(|e| format!("{}: {e}", e.instance_path())).collect();
                assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen >= 6, "only {seen} files");
}

#[test]
fn refuses_what_the_reader_refuses() {
    let schema = jsonschema::draft202012::new(&json_schema(REGISTRY)).expect("a valid schema");
    let good = example("dumbbell.toml");
    assert!(schema.is_valid(&good));
    let wrong: [(&str, Value); 10] = [
        ("/version", json!(2)),
        ("/run/duration", json!(5)),
        ("/run/duration", json!("5 hours")),
        ("/run/trials", json!(0)),
        ("/network/left", json!("8")),
        ("/network/builder", json!("star")),
        ("/network/bottleneck/rate", json!("20mbps")),
        ("/network/bottleneck/queue", json!("60")),
        ("/flows/0", json!({ "name": "up", "from": "left", "to": "right", "rate": "1mbit" })),
        ("/schemes/bas/alocator", json!("bas")),
    ];
    for (pointer, value) in wrong {
        let mut instance = good.clone();
        match instance.pointer_mut(pointer) {
            Some(place) => *place = value.clone(),
            None => {
                let (parent, key) = pointer.rsplit_once('/').expect("a path");
                instance.pointer_mut(parent).expect("a table")[key] = value.clone();
            }
        }
        assert!(!schema.is_valid(&instance), "{pointer} = {value}");
    }
}

/// What no file of the repository has: every kind of draw, and a file that is completed by those it includes.
#[test]
fn accepts_what_the_reader_accepts() {
    let schema = jsonschema::draft202012::new(&json_schema(REGISTRY)).expect("a valid schema");
    let mut file = example("dumbbell.toml");
    let eight = (1..=8).map(|i| format!("{i}ms {}", f64::from(i) / 8.0)).collect::<Vec<_>>().join(", ");
    let (eight, nine) = (format!("cdf({eight})"), format!("cdf(500us 0.01, {eight})"));
    for (draw, is_one) in [
        ("25ms", true),
        ("uniform(2ms, 6ms)", true),
        ("normal(20ms, 2ms)", true),
        ("cdf(10us 0.5, 20us 0.9, 1ms 1)", true),
        ("cdf( 10us  5e-1,1ms 1 )", true),
        (&eight, true),
        (&nine, false),
        ("cdf()", false),
        ("cdf(10us)", false),
        ("cdf(10us 0.5, 20us 0.9, 1ms 1", false),
    ] {
        file["network"]["bottleneck"]["jitter"] = json!(draw);
        assert_eq!(schema.is_valid(&file), is_one, "{draw}");
        let text = toml::to_string(&file).expect("TOML");
        let read = bandmaster_core::scenario::parse("x.toml", &text, &Options::default());
        assert_eq!(read.is_ok(), is_one, "{draw}: {:?}", read.err());
    }
    assert!(schema.is_valid(&json!({ "version": 1, "include": ["dumbbell.toml"], "run": { "trials": 3 } })));
    assert!(!schema.is_valid(&json!({ "version": 1, "run": { "trials": 3 } })));
}

#[test]
fn describes_every_key_and_shows_defaults() {
    let schema = json_schema(REGISTRY);
    assert_eq!(schema["additionalProperties"], json!(false));
    assert_eq!(schema["anyOf"][0]["required"], json!(["version", "name", "run", "network", "flows"]));
    let sample = &schema["properties"]["run"]["properties"]["sample"];
    assert_eq!(sample["default"], json!("100ms"));
    assert!(sample["description"].as_str().is_some_and(|d| d.starts_with("Sampling interval")));
    let sack = &schema["properties"]["tcp"]["properties"]["sack"];
    assert_eq!(sack["default"], json!(true));
    let alpha = &schema["properties"]["schemes"]["properties"]["bas"]["properties"]["alpha"];
    assert_eq!((&alpha["default"], &alpha["maximum"]), (&json!(0.4), &json!(1.0)));
}

//! The worked examples of `docs/schemes/opentcp.md`: files and commands of the page, run as they stand there, and the
//! output that it shows. `BANDMASTER_BLESS=1` rewrites the page's outputs.

use std::path::Path;

use crate::program::Scratch;

const BEGIN: &str = "### Worked examples\n";
const EXAMPLES: usize = 3;

/// A fenced block of the page: its language and its lines.
struct Block {
    language: String,
    text: String,
}

/// The parts of `page`: text outside blocks, and blocks.
fn blocks(page: &str) -> Vec<Result<String, Block>> {
    let mut parts = Vec::new();
    for (number, piece) in page.split("```").enumerate() {
        parts.push(if number % 2 == 0 {
            Ok(piece.to_owned())
        } else {
            let (language, text) = piece.split_once('\n').expect("a block begins with its language");
            Err(Block { language: language.to_owned(), text: text.to_owned() })
        });
    }
    parts
}

#[test]
fn the_worked_examples_run_as_they_stand() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemes/opentcp.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (head, rest) = page.split_once(BEGIN).expect("a section of worked examples");
    let end = rest.find("\n## ").expect("a section behind");
    let (section, tail) = rest.split_at(end);
    let scratch = Scratch::new("policies");
    let mut written = String::new();
    let (mut examples, mut commands) = (0, 0);
    for part in blocks(section) {
        let block = match part {
            Ok(text) => {
                examples += text.matches("\n#### ").count();
                written.push_str(&text);
                continue;
            }
            Err(block) => block,
        };
        let mut text = block.text.clone();
        match block.language.as_str() {
            // A file says its name first.
            "toml" | "json" => {
                let name = text.split_whitespace().nth(1).expect("a name");
                let content = if block.language == "json" {
                    text.split_once('\n').expect("lines").1.to_owned()
                } else {
                    text.clone()
                };
                scratch.write(name.trim_end_matches(':'), content);
            }
            "console" => {
                text = String::new();
                for command in block.text.lines().filter_map(|line| line.strip_prefix("$ bandmaster ")) {
                    let args: Vec<&str> = command.split_whitespace().collect();
                    let ended = scratch.run(&args).expect(0);
                    text.push_str(&format!("$ bandmaster {command}\n"));
                    let shown = ended.stdout.lines().filter(|line| !line.starts_with("report: "));
                    shown.for_each(|line| text.push_str(&format!("{}\n", line.trim_end())));
                    commands += 1;
                }
            }
            other => panic!("a block of `{other}`"),
        }
        written.push_str(&format!("```{}\n{text}```", block.language));
    }
    assert!(examples == EXAMPLES && commands >= EXAMPLES, "{examples} examples, {commands} commands");
    if std::env::var_os("BANDMASTER_BLESS").is_some() {
        std::fs::write(&path, format!("{head}{BEGIN}{written}{tail}")).expect("written");
    } else {
        assert_eq!(section, written, "the page is old: BANDMASTER_BLESS=1 rewrites it");
    }
}

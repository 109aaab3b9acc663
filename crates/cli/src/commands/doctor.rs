//! `bandmaster doctor`.

use clap::Args;

use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Say what this machine can do, what is missing, and the remedy
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct DoctorArgs {
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  bandmaster doctor
  sudo bandmaster doctor
  bandmaster doctor --json | jq '.items[] | select(.state != \"ok\")'

What the kernel can do is found by trying it in a network namespace that ends with the command; the
machine's own network is not touched. Without root a user namespace is tried, and what could not be
tried is `unknown`. Trying may make the kernel load its module, as the first use does.

Exit codes: 0 all that `emulate`, `gateway` and `agent` need is there, 2 usage, 3 something is
missing or could not be tried.";

/// Prints what this machine can do.
#[cfg(target_os = "linux")]
pub(crate) fn doctor(args: &DoctorArgs, console: Console) -> Result<Exit, Failure> {
    use bandmaster_linux::doctor;

    let found = doctor::examine();
    let text = if args.json { linux::json(&found) } else { linux::table(&found) };
    console.print(&text)?;
    let lacks = doctor::COMMANDS.iter().any(|command| !found.gaps(command).is_empty());
    Ok(if lacks { Exit::MissingCapability } else { Exit::Success })
}

/// There is nothing to look at.
#[cfg(not(target_os = "linux"))]
pub(crate) fn doctor(_args: &DoctorArgs, _console: Console) -> Result<Exit, Failure> {
    let why = "doctor: `emulate`, `gateway` and `agent` need Linux; `run` works here";
    Err(Failure::new(Exit::MissingCapability, why))
}

#[cfg(target_os = "linux")]
mod linux {
    use bandmaster_linux::doctor::{COMMANDS, Examination, Item, State};
    use comfy_table::Table;
    use serde_json::json;

    use crate::report::manifest::json_lines;
    use crate::report::table::plain;

    pub(super) fn json(found: &Examination) -> String {
        let mut document = json!({"version": 1});
        document["kernel"] = json!(found.kernel);
        for command in COMMANDS {
            let gaps: Vec<&str> = found.gaps(command).iter().map(|item| item.name.as_str()).collect();
            document[command] = json!({"ok": gaps.is_empty(), "lacks": gaps});
        }
        document["items"] = json!(found.items);
        json_lines(&document, 2)
    }

    pub(super) fn table(found: &Examination) -> String {
        let mut table = Table::new();
        table.set_header(["area", "what", "state", "seen", "for"]);
        for item in &found.items {
            let Item { area, name, state, seen, .. } = item;
            table.add_row([area, name.as_str(), state.word(), seen, &purpose(item)]);
        }
        let mut text = format!("Linux {}\n\n{}\n", found.kernel, plain(table));
        let lacks = |item: &&Item| item.state != State::Ok && item.purpose.is_some();
        let mut lacking: Vec<&Item> = found.items.iter().filter(lacks).collect();
        lacking.sort_by_key(|item| item.needed_by.is_empty());
        if !lacking.is_empty() {
            text += "\nRemedies\n";
        }
        for item in lacking {
            let (Item { area, name, .. }, Some(remedy)) = (item, &item.remedy) else { continue };
            let needed = if item.needed_by.is_empty() { "" } else { " (needed)" };
            text += &format!("  {area} {name}{needed}: {remedy}\n");
        }
        text += "\n";
        for command in COMMANDS {
            let gaps = found.gaps(command);
            let names: Vec<&str> = gaps.iter().map(|item| item.name.as_str()).collect();
            text += &match names.as_slice() {
                [] => format!("{command}: all that it needs is there\n"),
                names => format!("{command}: lacks {}\n", names.join(", ")),
            };
        }
        text
    }

    fn purpose(item: &Item) -> String {
        match (item.needed_by, item.purpose) {
            (_, None) => "(not used)".to_owned(),
            ([], Some(purpose)) => purpose.to_owned(),
            (commands, Some(purpose)) => format!("{}: {purpose}", commands.join(", ")),
        }
    }
}

//! `bandmaster export`.

mod flent;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bandmaster_table::read::{Table, Value, push_csv};
use clap::{Args, ValueEnum, ValueHint};
use serde_json::json;

use super::compare::results::Results;
use crate::console::{Console, complain};
use crate::exit::{Exit, Failure};
use crate::report::folder::OutputFolder;
use crate::report::manifest::json_lines;

/// Write results in formats of other programs
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ExportArgs {
    /// Result folder
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    /// What to write
    #[arg(long, value_enum)]
    format: Format,
    /// Folder for the files; must be new or empty [default: FOLDER-FORMAT]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// Print names of the files and their rows as JSON on stdout
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  bandmaster export results/network-001 --format csv
  bandmaster export results/network-001 --format flent -o for-flent

csv writes trials.csv, flows.csv and series.csv: the columns of the Parquet tables, a line of names
first, nothing for null, numbers so that they read back exactly.
flent writes NAME.flent.gz for each case and trial, from series.parquet: the throughput of each flow
(with measure.record = \"flows\") or group as that of the Flent test tcp_nup, all else by its name.

Exit codes: 0 written, 2 usage, no results or another version, 4 failure.";

/// Formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// Comma-separated values
    Csv,
    /// Data files of Flent, version 4
    Flent,
}

/// The tables of a folder.
const TABLES: [&str; 3] = ["trials", "flows", "series"];

/// Writes results in another format.
pub(crate) fn export(args: &ExportArgs, console: Console) -> Result<Exit, Failure> {
    let results = Results::read(&args.folder)?;
    let (format, suffix) = match args.format {
        Format::Csv => (csv as Writer, "csv"),
        Format::Flent => (flent::write as Writer, "flent"),
    };
    let tables: Vec<(&str, PathBuf)> =
        TABLES.iter().map(|name| (*name, args.folder.join(format!("{name}.parquet")))).collect();
    let needed = if args.format == Format::Flent { "series" } else { "trials" };
    if let Some((_, path)) = tables.iter().find(|(name, path)| *name == needed && !path.exists()) {
        return Err(Failure::usage(format!(
            "{}: no such table; this folder is of an older version: run it again",
            path.display()
        )));
    }
    if let Some(why) = &results.incomplete {
        complain(format!("warning: {} is not complete: {why}", results.path));
    }
    let out = args.out.clone().unwrap_or_else(|| {
        // `.` and `..` have a name too.
        let named = args.folder.file_name().is_none().then(|| args.folder.canonicalize().ok()).flatten();
        let folder = named.as_ref().unwrap_or(&args.folder);
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        folder.with_file_name(format!("{name}-{suffix}"))
    });
    let existed = out.exists();
    let folder = OutputFolder::create(Some(&out), "", false)?;
    let written = match format(&tables, &folder) {
        Ok(written) => written,
        Err(failure) => {
            folder.discard(existed)?;
            return Err(failure);
        }
    };
    folder.finish()?;
    if args.json {
        let files = written.iter().map(|(name, rows)| json!({"file": name, "rows": rows}));
        console.print(&json_lines(
            &json!({"version": 1, "folder": out.display().to_string(), "files": files.collect::<Vec<_>>()}),
            2,
        ))?;
    }
    console.say(format!("{} files in {}", written.len(), out.display()));
    Ok(Exit::Success)
}

/// Writes tables into a folder: the names of the files, and their rows.
type Writer = fn(&[(&str, PathBuf)], &OutputFolder) -> Result<Vec<(String, u64)>, Failure>;

fn csv(tables: &[(&str, PathBuf)], folder: &OutputFolder) -> Result<Vec<(String, u64)>, Failure> {
    let mut written = Vec::new();
    for (name, path) in tables.iter().filter(|(_, path)| path.exists()) {
        let table = open(path)?;
        let name = format!("{name}.csv");
        let mut rows = 0;
        folder.write(&name, |out| {
            let names: Vec<Value> = table.columns.iter().cloned().map(Value::Text).collect();
            let mut line = String::new();
            for row in std::iter::once(Ok(names)).chain(table) {
                line.clear();
                for (at, value) in row?.iter().enumerate() {
                    if at > 0 {
                        line.push(',');
                    }
                    push_csv(&mut line, value);
                }
                line.push('\n');
                out.write_all(line.as_bytes())?;
                rows += 1;
            }
            Ok(())
        })?;
        written.push((name, rows - 1));
    }
    Ok(written)
}

fn open(path: &Path) -> Result<Table, Failure> {
    File::open(path).and_then(Table::open).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::run(format!("{}: cannot be read: {error}", path.display()))
}

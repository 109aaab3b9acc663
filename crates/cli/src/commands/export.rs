//! `bandmaster export`.

mod figures;
mod flent;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bandmaster_table::read::{Table, Value, push_csv};
use clap::{Args, ValueEnum, ValueHint};
use serde_json::json;

use self::figures::Drawing;
use super::compare::results::Results;
use crate::args::whole_number;
use crate::console::{Console, complain};
use crate::exit::{Exit, Failure};
use crate::report::ReportError;
use crate::report::folder::OutputFolder;
use crate::report::manifest::json_lines;
use crate::report::picture::{self, Kind, Width};

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
    /// Width of figures [default: 8.5cm]
    #[arg(long, value_name = "WIDTH")]
    width: Option<Width>,
    /// Pixels to an inch of figures as PNG [default: 300]
    #[arg(long, value_name = "N", value_parser = whole_number::<u16>(30, 2_400))]
    dpi: Option<u16>,
    /// Print names of the files and their rows as JSON on stdout
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  bandmaster export results/network-001 --format csv
  bandmaster export results/network-001 --format flent -o for-flent
  bandmaster export results/network-001 --format pdf --width 8.5cm

csv writes trials.csv, flows.csv and series.csv: the columns of the Parquet tables, a line of names
first, nothing for null, numbers so that they read back exactly.
flent writes NAME.flent.gz for each case and trial, from series.parquet. The throughput of a flow
(with measure.record = \"flows\") or group is named as in the Flent test tcp_nup; other metrics keep
their names.
svg, pdf and png write each figure in the stated width, 8.5cm unless --width says otherwise. Below
16 cm it is the figure for a column, whose text has 8 pt at 8.5 cm, else the one for a page.

Exit codes: 0 written, 2 usage, no results or another version, 3 this program draws no PDF and PNG,
4 failure.";

/// Formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// Comma-separated values
    Csv,
    /// Data files of Flent, version 4
    Flent,
    /// Figures
    Svg,
    /// Figures
    Pdf,
    /// Figures
    Png,
}

impl Format {
    /// Of figures.
    fn kind(self) -> Option<Kind> {
        match self {
            Self::Csv | Self::Flent => None,
            Self::Svg => Some(Kind::Svg),
            Self::Pdf => Some(Kind::Pdf),
            Self::Png => Some(Kind::Png),
        }
    }
}

/// The tables of a folder.
const TABLES: [&str; 3] = ["trials", "flows", "series"];

/// Writes results in another format.
pub(crate) fn export(args: &ExportArgs, console: Console) -> Result<Exit, Failure> {
    let results = Results::read(&args.folder)?;
    let (kind, suffix) = match args.format {
        Format::Csv => (None, "csv"),
        Format::Flent => (None, "flent"),
        figures => (figures.kind(), figures.kind().map_or("", Kind::extension)),
    };
    if args.width.is_some() && kind.is_none() {
        return Err(Failure::usage("--width is of figures: --format svg, pdf or png"));
    }
    if args.dpi.is_some() && kind != Some(Kind::Png) {
        return Err(Failure::usage("--dpi is of --format png"));
    }
    if let Some(why) = kind.and_then(picture::missing) {
        return Err(Failure::new(Exit::MissingCapability, why));
    }
    // Of figures: what is drawn, and how.
    let figures = match kind {
        Some(kind) => {
            let (width, dpi) = (args.width.unwrap_or(COLUMN), args.dpi.unwrap_or(300));
            let drawing = Drawing { kind, width, dpi };
            Some((figures::read(&args.folder, drawing)?, drawing))
        }
        None => None,
    };
    let tables: Vec<(&str, PathBuf)> =
        TABLES.iter().map(|name| (*name, args.folder.join(format!("{name}.parquet")))).collect();
    let needed = if args.format == Format::Flent { "series" } else { "trials" };
    let is_missing = |(name, path): &&(&str, PathBuf)| kind.is_none() && *name == needed && !path.exists();
    if let Some((_, path)) = tables.iter().find(is_missing) {
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
    let folder = OutputFolder::create(Some(&out), "", false).map_err(|error| match error {
        ReportError::Occupied(path) => Failure::usage(format!(
            "output folder `{}` is not empty: give another one with --out",
            path.display()
        )),
        error => error.into(),
    })?;
    let written = match (args.format, &figures) {
        (_, Some((sources, drawing))) => figures::write(sources, &folder, *drawing),
        (Format::Flent, None) => flent::write(&tables, &folder),
        (_, None) => csv(&tables, &folder),
    };
    let written = match written {
        Ok(written) => written,
        Err(failure) => {
            folder.discard(existed)?;
            return Err(failure);
        }
    };
    folder.finish()?;
    if args.json {
        let files = written.iter().map(|(name, rows)| match rows {
            Some(rows) => json!({"file": name, "rows": rows}),
            None => json!({"file": name}),
        });
        console.print(&json_lines(
            &json!({"version": 1, "folder": out.display().to_string(), "files": files.collect::<Vec<_>>()}),
            2,
        ))?;
    }
    console.say(format!("{} files in {}", written.len(), out.display()));
    Ok(Exit::Success)
}

/// The names of files that were written, and their rows if they are tables.
type Written = Vec<(String, Option<u64>)>;

/// Of a column of a paper.
const COLUMN: Width = Width::from_millimetres(85.0);

fn csv(tables: &[(&str, PathBuf)], folder: &OutputFolder) -> Result<Written, Failure> {
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
        written.push((name, Some(rows - 1)));
    }
    Ok(written)
}

fn open(path: &Path) -> Result<Table, Failure> {
    File::open(path).and_then(Table::open).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::run(format!("{}: cannot be read: {error}", path.display()))
}

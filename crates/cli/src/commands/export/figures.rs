//! Figures of a report as SVG, PDF and PNG in a stated width.

use std::fs;
use std::path::Path;

use super::Written;
use crate::exit::Failure;
use crate::report::folder::OutputFolder;
use crate::report::picture::{self, Kind, Width};

/// From this width on a figure is that for a page; at it, its text has about 7 pt.
const PAGE: Width = Width::from_millimetres(160.0);

/// Writes every figure of the results in `from`.
pub(super) fn write(
    from: &Path,
    folder: &OutputFolder,
    kind: Kind,
    width: Width,
    dpi: u16,
) -> Result<Written, Failure> {
    let figures = from.join("figures");
    let place = figures.display();
    let entries = fs::read_dir(&figures)
        .map_err(|_| Failure::usage(format!("{place}: no such folder; these results have no figures")))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let ids = names.iter().filter_map(|name| name.strip_suffix(".svg"));
    let ids: Vec<&str> = ids.filter(|id| !id.ends_with(".column")).collect();
    if ids.is_empty() {
        return Err(Failure::usage(format!("{place}: has no figures")));
    }
    let mut written = Vec::new();
    for id in ids {
        let source = if width < PAGE { format!("{id}.column.svg") } else { format!("{id}.svg") };
        let source = figures.join(source);
        let wrong = |why: String| Failure::run(format!("{}: {why}", source.display()));
        let svg = fs::read_to_string(&source).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let picture = picture::draw(&svg, kind, width, dpi).map_err(wrong)?;
        let name = format!("{id}.{}", kind.extension());
        folder.write(&name, |out| std::io::Write::write_all(out, &picture))?;
        written.push((name, None));
    }
    Ok(written)
}

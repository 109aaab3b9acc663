//! Figures of a report as SVG, PDF and PNG in a stated width.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::Written;
use crate::exit::Failure;
use crate::report::folder::OutputFolder;
use crate::report::picture::{self, Kind, Width};

/// From this width on a figure is that for a page; at it, its text has about 7 pt.
const PAGE: Width = Width::from_millimetres(160.0);

/// Most pixels of a picture, in millions: 400 MB while it is drawn.
const MOST_MEGAPIXELS: f64 = 100.0;

/// A figure of the results.
pub(super) struct Source {
    id: String,
    path: PathBuf,
    svg: String,
}

/// How figures are drawn.
#[derive(Clone, Copy)]
pub(super) struct Drawing {
    pub(super) kind: Kind,
    pub(super) width: Width,
    /// Of PNG, pixels to an inch.
    pub(super) dpi: u16,
}

/// Reads every figure of the results in `from`. Nothing is made yet.
///
/// # Errors
/// When there is none, or one would be too large.
pub(super) fn read(from: &Path, drawing: Drawing) -> Result<Vec<Source>, Failure> {
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
    let mut sources = Vec::new();
    for id in ids {
        let name = if drawing.width < PAGE { format!("{id}.column.svg") } else { format!("{id}.svg") };
        let path = figures.join(name);
        let place = path.display();
        let svg = fs::read_to_string(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::usage(format!(
                "{place}: no such figure; this folder is of an older version: run it again"
            )),
            _ => Failure::run(format!("{place}: cannot be read: {error}")),
        })?;
        if drawing.kind == Kind::Png {
            check_size(&svg, drawing).map_err(|why| Failure::usage(format!("{place}: {why}")))?;
        }
        sources.push(Source { id: id.to_owned(), path, svg });
    }
    Ok(sources)
}

fn check_size(svg: &str, Drawing { width, dpi, .. }: Drawing) -> Result<(), String> {
    let megapixels = picture::megapixels(svg, width, dpi).ok_or("is no figure of bandmaster")?;
    if megapixels > MOST_MEGAPIXELS {
        return Err(format!(
            "would have {megapixels:.0} megapixels, of at most {MOST_MEGAPIXELS}: \
             give a smaller --width or a lower --dpi than {dpi}"
        ));
    }
    Ok(())
}

/// Writes figures.
pub(super) fn write(
    sources: &[Source],
    folder: &OutputFolder,
    Drawing { kind, width, dpi }: Drawing,
) -> Result<Written, Failure> {
    let mut written = Vec::new();
    for Source { id, path, svg } in sources {
        let picture = picture::draw(svg, kind, width, dpi)
            .map_err(|why| Failure::run(format!("{}: {why}", path.display())))?;
        let name = format!("{id}.{}", kind.extension());
        folder.write(&name, |out| out.write_all(&picture))?;
        written.push((name, None));
    }
    Ok(written)
}

//! The output folder: never half-written without a mark that says so, never overwritten silently.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::ReportError;
use crate::records;

/// Parent of the folders that get their name from the run.
const RESULTS: &str = "results";

const MARK: &str = "INCOMPLETE";

const MARK_TEXT: &str = "bandmaster has not finished this folder: it is still at work, or was ended early.\n\
                         Files may be missing. A finished run removes this mark.\n";

/// Files that a report consists of; `--force` removes those of an earlier report.
const REPORT_FILES: [&str; 6] =
    ["report.html", "trials.parquet", "flows.parquet", "series.parquet", "summary.json", "manifest.json"];

/// Names of a folder in which no trial has finished.
const EMPTY: [&str; 2] = [MARK, records::FILE];

/// A folder that is being written.
#[derive(Debug)]
pub(crate) struct OutputFolder {
    path: PathBuf,
    /// Of a run that goes on: its records stay.
    resumed: bool,
}

impl OutputFolder {
    /// Makes the folder `path`, or without one `results/<name>-NNN` with the next free number, and marks it as
    /// incomplete. With `force`, a folder that has content is used too, and a report in it is replaced.
    ///
    /// # Errors
    /// When the path is a file or, without `force`, a folder with content: nothing is touched then. When the system
    /// refuses.
    pub(crate) fn create(path: Option<&Path>, name: &str, force: bool) -> Result<Self, ReportError> {
        let path = match path {
            Some(path) => {
                check_free(path, force)?;
                fs::create_dir_all(path).map_err(|error| failed("create the folder", path, error))?;
                path.to_owned()
            }
            None => create_numbered(Path::new(RESULTS), name)?,
        };
        let ours = path.join(MARK).exists() || path.join("manifest.json").exists();
        let folder = Self { path, resumed: false };
        folder.write_mark()?;
        if ours {
            folder.remove_report()?;
            records::remove(&folder.path)?;
        }
        Ok(folder)
    }

    /// A folder of a run that was not completed, which goes on.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn resume(path: &Path) -> Result<Self, ReportError> {
        let folder = Self { path: path.to_owned(), resumed: true };
        folder.write_mark()?;
        folder.remove_report()?;
        Ok(folder)
    }

    /// Checks what [`create`](Self::create) would refuse, without touching anything.
    ///
    /// # Errors
    /// When the path is a file or, without `force`, a folder with content.
    pub(crate) fn check(path: Option<&Path>, force: bool) -> Result<(), ReportError> {
        path.map_or(Ok(()), |path| check_free(path, force))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file of the folder by `content`; it appears under its name when it is complete.
    ///
    /// # Errors
    /// When `content` or the system refuses; no file of that name is left then.
    pub(crate) fn write(
        &self,
        name: &str,
        content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), ReportError> {
        let path = self.path.join(name);
        let parent = path.parent().unwrap_or(&self.path);
        fs::create_dir_all(parent).map_err(|error| failed("create the folder", parent, error))?;
        let base = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{base}.part"));
        let file = File::create(&temporary).map_err(|error| failed("create", &temporary, error))?;
        let mut out = BufWriter::with_capacity(1 << 16, file);
        let written = content(&mut out)
            .and_then(|()| out.flush())
            .and_then(|()| out.get_ref().sync_all())
            .and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|error| {
            // The error that is reported is the first one.
            let _ = fs::remove_file(&temporary);
            failed("write", &path, error)
        })
    }

    /// Removes the mark, then the records: the folder is as complete as its manifest says.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn finish(self) -> Result<(), ReportError> {
        let mark = self.path.join(MARK);
        fs::remove_file(&mark).map_err(|error| failed("remove", &mark, error))?;
        records::remove(&self.path)
    }

    /// Removes a folder without results, when nothing else is in it; one that was there stays. All of a run that goes on stays.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn discard(self, existed: bool) -> Result<(), ReportError> {
        if self.resumed {
            return Ok(());
        }
        let entries =
            fs::read_dir(&self.path).map_err(|error| failed("read the folder", &self.path, error))?;
        let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        if names.iter().any(|name| !EMPTY.iter().any(|own| name == own)) {
            return Ok(());
        }
        records::remove(&self.path)?;
        let mark = self.path.join(MARK);
        fs::remove_file(&mark).map_err(|error| failed("remove", &mark, error))?;
        if existed {
            return Ok(());
        }
        fs::remove_dir(&self.path).map_err(|error| failed("remove", &self.path, error))
    }

    fn write_mark(&self) -> Result<(), ReportError> {
        let mark = self.path.join(MARK);
        fs::write(&mark, MARK_TEXT).map_err(|error| failed("write", &mark, error))
    }

    fn remove_report(&self) -> Result<(), ReportError> {
        let figures =
            fs::read_dir(self.path.join("figures")).into_iter().flatten().flatten().map(|entry| entry.path());
        let drawings = figures.filter(|path| path.extension().is_some_and(|extension| extension == "svg"));
        for path in REPORT_FILES.iter().map(|name| self.path.join(name)).chain(drawings) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(failed("remove", &path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn check_free(path: &Path, force: bool) -> Result<(), ReportError> {
    match fs::read_dir(path) {
        Ok(_) if force => records::check_unused(&path.join(records::FILE)),
        Ok(_) if records::are_in(path) => Err(ReportError::Resumable(path.to_owned())),
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(ReportError::Occupied(path.to_owned())),
            None => Ok(()),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            Err(ReportError::NotAFolder(path.to_owned()))
        }
        Err(error) => Err(failed("read the folder", path, error)),
    }
}

fn create_numbered(parent: &Path, name: &str) -> Result<PathBuf, ReportError> {
    fs::create_dir_all(parent).map_err(|error| failed("create the folder", parent, error))?;
    let prefix = format!("{name}-");
    let entries = fs::read_dir(parent).map_err(|error| failed("read the folder", parent, error))?;
    let number = |entry: fs::DirEntry| -> Option<u32> {
        entry.file_name().to_str()?.strip_prefix(&prefix)?.parse().ok()
    };
    let mut next = entries.flatten().filter_map(number).max().map_or(1, |last| last.saturating_add(1));
    loop {
        let path = parent.join(format!("{prefix}{next:03}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            // Another run took the number in the meantime.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && next < u32::MAX => next += 1,
            Err(error) => return Err(failed("create the folder", &path, error)),
        }
    }
}

fn failed(doing: &'static str, path: &Path, error: io::Error) -> ReportError {
    ReportError::Io { doing, path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::Scratch;

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_mark_is_there_first_and_goes_last() {
        let scratch = Scratch::new("mark");
        let path = scratch.path().join("deep/out");
        let folder = OutputFolder::create(Some(&path), "x", false).unwrap();
        assert_eq!(names(&path), [MARK]);
        folder.write("figures/a.svg", |out| out.write_all(b"<svg/>")).unwrap();
        assert_eq!(names(&path), [MARK, "figures"]);
        folder.finish().unwrap();
        assert_eq!(names(&path), ["figures"]);
        assert_eq!(fs::read(path.join("figures/a.svg")).unwrap(), b"<svg/>");
    }

    #[test]
    fn a_run_that_goes_on_is_not_discarded() {
        let scratch = Scratch::new("resumed");
        fs::write(scratch.path().join(records::FILE), "records").unwrap();
        OutputFolder::resume(scratch.path()).unwrap().discard(true).unwrap();
        assert_eq!(names(scratch.path()), [MARK, records::FILE]);
    }

    #[test]
    fn a_file_that_fails_leaves_nothing_under_its_name() {
        let scratch = Scratch::new("failing");
        let folder = OutputFolder::create(Some(scratch.path()), "x", false).unwrap();
        let error = folder
            .write("report.html", |out| {
                out.write_all(b"half")?;
                Err(io::Error::from(ErrorKind::StorageFull))
            })
            .unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("cannot write `") && message.contains("report.html`: "), "{message}");
        assert!(!error.is_usage());
        assert_eq!(names(scratch.path()), [MARK]);
    }

    #[test]
    fn content_is_refused_without_force_and_untouched() {
        let scratch = Scratch::new("occupied");
        fs::write(scratch.path().join("notes.txt"), "mine").unwrap();
        let error = OutputFolder::create(Some(scratch.path()), "x", false).unwrap_err();
        assert!(error.is_usage());
        assert!(error.to_string().contains("--force"), "{error}");
        assert!(OutputFolder::check(Some(scratch.path()), false).is_err());
        assert_eq!(names(scratch.path()), ["notes.txt"]);

        let file = scratch.path().join("notes.txt");
        let error = OutputFolder::create(Some(&file), "x", true).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("is a file"), "{error}");
    }

    #[test]
    fn force_replaces_a_report_and_nothing_else() {
        let scratch = Scratch::new("force");
        let write = |name: &str| {
            let path = scratch.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "old").unwrap();
        };
        // A folder that is not a report keeps even files that are called like ours.
        write("summary.json");
        write("figures/mine.svg");
        OutputFolder::create(Some(scratch.path()), "x", true).unwrap().finish().unwrap();
        assert_eq!(names(scratch.path()), ["figures", "summary.json"]);
        write("manifest.json");
        write("notes.txt");
        OutputFolder::create(Some(scratch.path()), "x", true).unwrap().finish().unwrap();
        assert_eq!(names(scratch.path()), ["figures", "notes.txt"]);
        assert!(names(&scratch.path().join("figures")).is_empty());
    }

    #[test]
    fn numbers_go_on_after_the_largest() {
        let scratch = Scratch::new("numbers");
        let parent = scratch.path().join(RESULTS);
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(name(create_numbered(&parent, "bas").unwrap()), "bas-001");
        assert_eq!(name(create_numbered(&parent, "bas").unwrap()), "bas-002");
        fs::create_dir(parent.join("bas-041")).unwrap();
        fs::create_dir(parent.join("bas-quick-099")).unwrap();
        assert_eq!(name(create_numbered(&parent, "bas").unwrap()), "bas-042");
        assert_eq!(name(create_numbered(&parent, "star").unwrap()), "star-001");
    }
}

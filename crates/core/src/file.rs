//! Reads a TOML file table by table: what was written, with its places, becomes typed values, or errors that name the
//! place. It knows neither schemes nor scenarios; the owner of a file supplies its tables as data.

mod error;
mod place;
mod raw;
mod section;
mod table;
mod words;

pub use error::{Error, Errors};
pub(crate) use place::{Place, Source};
pub(crate) use raw::{
    Content, Entry, Item, Table, read_file, read_included, read_word, scalar_text, split_path,
};
pub use section::Explained;
pub(crate) use section::{Layer, Reader, Section, joined};
pub(crate) use table::{Selector, Shape, TableDef};
pub(crate) use words::{is_name, list, suggestion};

/// Where the files are that a file names; this crate knows no files.
pub trait Files: core::fmt::Debug {
    /// The text of the file that is called `name`.
    ///
    /// # Errors
    /// Why it cannot be read, as the rest of "`name`: ...".
    fn read(&self, name: &str) -> Result<String, String>;
}

/// Has one text, whatever the name.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct OneText(pub(crate) &'static str);

#[cfg(test)]
impl Files for OneText {
    fn read(&self, _name: &str) -> Result<String, String> {
        Ok(self.0.to_owned())
    }
}

//! What the files of all daemons have in common.

use std::net::{IpAddr, SocketAddr};

use crate::file::{self, Errors, Files, Item, Reader, Section};
use crate::params::{Choice, Key, Kind, choice, key};
use crate::time::Span;

/// Where the folders of daemons are.
const STATE_FOLDER: &str = "/var/lib/bandmaster";
/// Longest name of a daemon: names of tables and sockets are made of it.
const LONGEST_NAME: usize = 32;
/// The shortest cycle, and interval between looks: an agent goes through its connections at each.
pub(crate) const SHORTEST_CYCLE: Span = Span::from_millis(100);

choice! {
    /// Form of the log.
    pub enum Log {
        /// `key=value` words.
        Logfmt = "logfmt",
        /// A JSON object a line.
        Json = "json",
    }
}

/// Keys that files of several daemons have.
pub(crate) const VERSION: Key = key! {
    /// Version of the file format: 1
    "version": Kind::Integer { min: 0, max: i64::MAX }, required
};
pub(crate) const NAME: Key = key! {
    /// Name of this daemon on the machine; absent: the file's name without `.toml`
    "name": Kind::Text, optional
};
pub(crate) const METRICS: Key = key! {
    /// Address and port where metrics are served; absent: nowhere
    "metrics": Kind::Text, optional
};
pub(crate) const LOG: Key = key! {
    /// Form of the log
    "log": Log::KIND, default "logfmt"
};

/// Reads a daemon's file. `file` is its name in messages; `beside` holds the files that it may name.
pub(crate) fn parse<T>(
    file: &str,
    text: &str,
    beside: Option<&dyn Files>,
    read: impl FnOnce(&mut Reader, &str, &Item) -> Option<T>,
) -> Result<T, Errors> {
    let root = file::read_file(file, text).map_err(Errors::new)?;
    let mut reader = Reader::new(file, beside, ());
    match read(&mut reader, file, &root) {
        Some(deployment) if reader.errors.is_empty() => Ok(deployment),
        _ => Err(Errors::new(reader.errors)),
    }
}

/// `version`: 1.
pub(crate) fn version(reader: &mut Reader, file: &Section<'_>) {
    if let Some(version) = file.integer("version").filter(|v| *v != 1) {
        reader.fail_key(file, "version", format!("{version} is not known; this program reads version 1"));
    }
}

/// The name of a daemon: what the file says at `name`, or what it is called itself.
pub(crate) fn name(reader: &mut Reader, path: &str, file: &Section<'_>) -> Option<String> {
    let told = file.text("name");
    if told.is_none() && file.item("name").is_some() {
        return None;
    }
    let is_told = told.is_some();
    let name = told.unwrap_or_else(|| stem(path).to_owned());
    if is_name(&name) {
        return Some(name);
    }
    let allowed = name_words();
    if is_told {
        reader.fail_key(file, "name", format!("\"{name}\" is not a name: {allowed}"));
    } else {
        let what = format!("is missing, and that of the file, \"{name}\", is not a name: {allowed}");
        reader.fail(&file.place, "name", what);
    }
    None
}

/// What a file is called without its folder and its last `.toml`.
fn stem(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.strip_suffix(".toml").unwrap_or(name)
}

/// What a name is.
pub fn name_words() -> String {
    format!("1 to {LONGEST_NAME} letters, digits, '-', '_' and '.', the first a letter or digit")
}

pub(crate) fn is_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=LONGEST_NAME).contains(&name.len())
        && name.chars().all(letter)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// `state-directory`; where it is absent, the folder of the daemon's name.
pub(crate) fn state_directory(reader: &mut Reader, file: &Section<'_>, name: Option<&str>) -> Option<String> {
    let folder = file.text("state-directory").or_else(|| name.map(|name| format!("{STATE_FOLDER}/{name}")));
    if folder.as_ref().is_some_and(|folder| !folder.starts_with('/')) {
        reader.fail_key(file, "state-directory", "is not an absolute path");
    }
    folder
}

/// The value of `key`: an address with a port.
pub(crate) fn address(reader: &mut Reader, file: &Section<'_>, key: &str) -> Option<SocketAddr> {
    let text = file.text(key)?;
    let address: Option<SocketAddr> = text.parse().ok();
    match address {
        None => {
            let what = format!("\"{text}\" is not an address with a port, such as \"127.0.0.1:9464\"");
            reader.fail_key(file, key, what);
        }
        Some(whole) => {
            let why = if whole.port() == 0 { Some("has port 0; write 1 to 65535") } else { many(whole.ip()) };
            if let Some(why) = why {
                reader.fail_key(file, key, format!("{text} {why}"));
            }
        }
    }
    address
}

/// Why no single machine has this address; none: one may.
pub(crate) fn many(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_multicast() => Some("is a multicast address: many machines may have it"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("is the broadcast address: every machine has it"),
        IpAddr::V4(v4) if v4.octets()[0] == 0 && !v4.is_unspecified() => {
            Some("is of network 0: no machine has it")
        }
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Some("is an IPv4 address in an IPv6 one; write the IPv4 one")
        }
        _ => None,
    }
}

/// Labels of letters, digits and hyphens between points (RFC 1123), one of which is not a number.
pub(crate) fn is_host(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let labels = name.strip_suffix('.').unwrap_or(name);
    (1..=253).contains(&labels.len())
        && labels.split('.').all(label)
        && labels.split('.').next_back().is_some_and(|last| last.contains(|c: char| c.is_ascii_alphabetic()))
}

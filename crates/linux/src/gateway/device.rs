//! Looks at a network device: its number, its queue discipline, its receive offload.

use std::process::Command;

use netlink_bindings::tc::{OptionsMsg, Request, Tcmsg};
use netlink_socket2::{NetlinkSocket, ReplyError};

use super::Error;
use crate::htb;

/// `TC_H_ROOT`.
pub(super) const ROOT: u32 = u32::MAX;

/// The queue discipline at the root of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RootQdisc {
    /// Name.
    pub(super) kind: String,
    /// Major and minor number; zero for those that the kernel puts there by itself.
    pub(super) handle: u32,
    /// Of an HTB: its mark, zero when it has none.
    pub(super) mark: u16,
}

impl RootQdisc {
    /// Whether a person or program has put it there.
    pub(super) fn foreign(&self) -> bool {
        self.handle != 0
    }
}

/// The number of device `name`.
pub(super) fn index(name: &str) -> Result<i32, Error> {
    match nix::net::if_::if_nametoindex(name) {
        Ok(index) => Ok(index as i32),
        Err(e) => Err(Error::Missing(format!("error: interface {name}: {}", e.desc()))),
    }
}

/// The name of device number `index`; none when there is none.
pub(super) fn name(index: i32) -> Option<String> {
    let name = nix::net::if_::if_indextoname(index.try_into().ok()?).ok()?;
    // nix takes the null that says "no such device" for a good answer, with nothing in it.
    Some(name.to_string_lossy().into_owned()).filter(|name| !name.is_empty())
}

/// The queue discipline at the root of device number `index`.
pub(super) fn root_qdisc(index: i32) -> Result<Option<RootQdisc>, Error> {
    let mut socket = NetlinkSocket::new();
    let header = Tcmsg { ifindex: index, ..Tcmsg::default() };
    let request = Request::new().op_getqdisc_dump(&header);
    let mut read = || -> Result<Option<RootQdisc>, ReplyError> {
        let mut found = None;
        let mut answer = socket.request(&request)?;
        while let Some(item) = answer.recv() {
            let (header, attributes) = item?;
            if header.ifindex == index && header.parent == ROOT {
                let kind = attributes.get_kind()?.to_string_lossy().into_owned();
                let mark = match attributes.get_options() {
                    Ok(OptionsMsg::Htb(options)) => {
                        options.get_init().map_or(0, |init| htb::mark(init.defcls))
                    }
                    _ => 0,
                };
                found = Some(RootQdisc { kind, handle: header.handle, mark });
            }
        }
        Ok(found)
    };
    read().map_err(|e| Error::Failed(format!("error: qdiscs of interface {index}: {e}")))
}

/// Whether the device merges received packets, which would then be counted as one; none when nobody can tell.
pub(super) fn merges_received(name: &str) -> Option<bool> {
    let output = Command::new("ethtool").args(["-k", name]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("generic-receive-offload:"))?;
    Some(line.contains(": on") && !line.contains("[fixed]"))
}

/// Lets the device merge received packets, or not.
pub(super) fn set_merging(name: &str, on: bool) -> Result<(), Error> {
    let word = if on { "on" } else { "off" };
    let output = Command::new("ethtool")
        .args(["-K", name, "gro", word])
        .output()
        .map_err(|e| Error::Missing(format!("error: ethtool: {e}; install ethtool")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Failed(format!("error: ethtool -K {name} gro {word}: {said}")))
}

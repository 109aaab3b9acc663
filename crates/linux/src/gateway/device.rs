//! Looks at a network device: its number, its queue discipline, its receive offload.

use std::fs;
use std::path::Path;
use std::process::Command;

use bandmaster_core::units::Rate;
use netlink_bindings::rt_link::{self, IfinfoFlags, Ifinfomsg};
use netlink_bindings::tc::{OptionsMsg, Request, Tcmsg};
use netlink_socket2::{NetlinkSocket, ReplyError};

use super::Error;
use crate::htb;

/// `TC_H_ROOT`.
pub(super) const ROOT: u32 = u32::MAX;

/// The queue discipline at the root of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RootQdisc {
    /// Name.
    pub(crate) kind: String,
    /// Major and minor number; zero when the kernel chose the queue discipline.
    pub(crate) handle: u32,
    /// Of an HTB: its mark, zero when it has none.
    pub(crate) mark: u16,
}

impl RootQdisc {
    /// Whether a person or program has put it there.
    pub(crate) fn foreign(&self) -> bool {
        self.handle != 0
    }
}

/// The number of device `name`.
pub(crate) fn index(name: &str) -> Result<i32, Error> {
    match nix::net::if_::if_nametoindex(name) {
        Ok(index) => Ok(index as i32),
        Err(e) => Err(Error::Missing(format!("error: interface {name}: {}", e.desc()))),
    }
}

/// The name of device number `index`; none when there is none.
pub(crate) fn name(index: i32) -> Option<String> {
    let name = nix::net::if_::if_indextoname(index.try_into().ok()?).ok()?;
    // nix takes the null that says "no such device" for a good answer, with nothing in it.
    Some(name.to_string_lossy().into_owned()).filter(|name| !name.is_empty())
}

/// A device as the kernel tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) index: i32,
    pub(super) is_up: bool,
    /// Something is at the other end.
    pub(super) has_carrier: bool,
    /// What the kernel calls such a device, when it has a word for it.
    pub(super) kind: Option<String>,
    /// The device that it belongs to, and how.
    pub(super) master: Option<(String, Option<String>)>,
}

/// Device `name`; none when there is none.
pub(super) fn link(name: &str) -> Result<Option<Link>, Error> {
    let Ok(index) = index(name) else { return Ok(None) };
    let mut socket = NetlinkSocket::new();
    let header = Ifinfomsg { ifi_index: index, ..Ifinfomsg::default() };
    let request = rt_link::Request::new().op_getlink_do(&header);
    let mut read = || -> Result<Link, ReplyError> {
        let mut answer = socket.request(&request)?;
        let (header, attributes) = answer.recv_one()?;
        let has = |flag: IfinfoFlags| header.ifi_flags & flag as u32 != 0;
        let info = attributes.get_linkinfo().ok();
        let word = |word: &std::ffi::CStr| word.to_string_lossy().into_owned();
        let master = attributes.get_master().ok().map(|master| {
            let name = i32::try_from(master).ok().and_then(self::name);
            let kind = info.as_ref().and_then(|info| info.get_slave_kind().ok()).map(word);
            (name.unwrap_or_else(|| format!("number {master}")), kind)
        });
        Ok(Link {
            index: header.ifi_index,
            is_up: has(IfinfoFlags::Up),
            has_carrier: has(IfinfoFlags::LowerUp),
            kind: info.as_ref().and_then(|info| info.get_kind().ok()).map(word),
            master,
        })
    };
    match read() {
        Ok(link) => Ok(Some(link)),
        // It has gone since.
        Err(_) if self::index(name).is_err() => Ok(None),
        Err(e) => Err(Error::Failed(format!("error: interface {name}: {e}"))),
    }
}

/// Masters whose members go on sending and receiving packets of IP themselves.
const ROUTING_MASTERS: [&str; 1] = ["vrf"];

impl Link {
    /// Why packets of IP go past classes and counters at `interface`, and what to do; none: they do not.
    pub(super) fn bypass(&self, interface: &str) -> Option<String> {
        match (&self.kind, &self.master) {
            (Some(kind), _) if kind == "bridge" => Some(format!(
                "interface {interface} is a bridge: what it passes from port to port goes past the classes, and its ports \
                 merge received packets. Route between the networks instead: take the port towards the peer out of the bridge \
                 (ip link set dev PORT nomaster), give it the address, and name it as interface"
            )),
            (_, Some((_, Some(kind)))) if ROUTING_MASTERS.contains(&&**kind) => None,
            (_, Some((master, kind))) => {
                let kind = kind.as_deref().unwrap_or("master");
                let remedy = match kind {
                    "bond" | "team" => format!("name {master} as interface"),
                    _ => format!(
                        "take it out (ip link set dev {interface} nomaster), give it the address, and route instead"
                    ),
                };
                Some(format!(
                    "interface {interface} belongs to the {kind} {master}: packets leave and arrive as those of {master}, past \
                     the classes and counters of {interface}; {remedy}"
                ))
            }
            (_, None) => None,
        }
    }
}

/// Refuses a device at which packets would go past the gateway.
pub(crate) fn fit(name: &str) -> Result<(), Error> {
    let why = link(name)?.and_then(|link| link.bypass(name));
    why.map_or(Ok(()), |why| Err(Error::Missing(format!("error: {why}"))))
}

/// The rate that a device reports; none when it reports none, or is a program's tunnel (TUN or TAP): for these the
/// kernel reports a rate that the program never set, 10 Mbit/s before Linux 5.17.
pub(super) fn speed(name: &str) -> Option<Rate> {
    let folder = Path::new("/sys/class/net").join(name);
    if folder.join("tun_flags").exists() {
        return None;
    }
    let mbits: u64 = fs::read_to_string(folder.join("speed")).ok()?.trim().parse().ok()?;
    // Those that do not know say -1, in 32 bits or with a sign.
    (mbits > 0 && mbits < u64::from(u32::MAX)).then(|| Rate::from_bits_per_sec(mbits * 1_000_000))
}

/// The queue discipline at the root of device number `index`.
pub(crate) fn root_qdisc(index: i32) -> Result<Option<RootQdisc>, Error> {
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
    is_on(&features(name)?, "generic-receive-offload")
}

/// By which offloads, as ethtool calls them, the device has packets that are several in one, as far as somebody can tell.
pub(crate) fn offloads(name: &str) -> Vec<&'static str> {
    let text = features(name).unwrap_or_default();
    let all = [
        ("gro", "generic-receive-offload"),
        ("gso", "generic-segmentation-offload"),
        ("tso", "tcp-segmentation-offload"),
    ];
    all.into_iter().filter(|(_, line)| is_on(&text, line) == Some(true)).map(|(word, _)| word).collect()
}

/// What ethtool tells of the device; none when nobody can tell.
fn features(name: &str) -> Option<String> {
    let output = Command::new("ethtool").args(["-k", name]).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether it can be changed, and is on.
fn is_on(features: &str, feature: &str) -> Option<bool> {
    let line = features.lines().find_map(|line| line.strip_prefix(feature)?.strip_prefix(':'))?;
    Some(line.starts_with(" on") && !line.contains("[fixed]"))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bonds and teams cannot be made on every machine; a bridge is tried between namespaces.
    #[test]
    fn members_of_masters_are_refused_by_name_but_those_of_a_vrf() {
        let link = |kind: Option<&str>, master: Option<(&str, Option<&str>)>| Link {
            index: 3,
            is_up: true,
            has_carrier: true,
            kind: kind.map(str::to_owned),
            master: master.map(|(name, kind)| (name.to_owned(), kind.map(str::to_owned))),
        };
        let bypass = |link: Link| link.bypass("wan0").unwrap_or_default();
        for fit in [link(None, None), link(Some("veth"), None), link(None, Some(("red", Some("vrf"))))] {
            assert_eq!(bypass(fit), "");
        }
        let port = bypass(link(None, Some(("br0", Some("bridge")))));
        assert!(port.contains("belongs to the bridge br0") && port.contains("nomaster"), "{port}");
        let slave = bypass(link(None, Some(("bond0", Some("bond")))));
        assert!(slave.contains("belongs to the bond bond0") && slave.contains("name bond0"), "{slave}");
        let other = bypass(link(None, Some(("ovs-system", None))));
        assert!(other.contains("belongs to the master ovs-system"), "{other}");
        let bridge = bypass(link(Some("bridge"), None));
        assert!(bridge.contains("is a bridge") && bridge.contains("nomaster"), "{bridge}");
    }

    #[test]
    fn the_kernel_tells_of_a_device_and_of_none() {
        let link = link("lo").expect("answered").expect("there");
        assert_eq!((link.index, link.master), (1, None));
        assert_eq!(super::link("no-such-dev"), Ok(None));
    }
}

//! Keeps the queue disciplines of a device as the kernel's own messages, and plays them back.

use netlink_bindings::consts::NLM_F_DUMP;
use netlink_bindings::tc::{Request, Tcmsg};
use netlink_bindings::traits::Pusher;
use netlink_socket2::{NetlinkSocket, ReplyError};
use serde::{Deserialize, Serialize};

use super::Error;
use super::device::ROOT;

/// Queue disciplines and classes below the root of a device, parents first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Saved {
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Entry {
    what: What,
    handle: u32,
    parent: u32,
    /// Attributes that make it what it is.
    attributes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum What {
    Qdisc,
    Class,
}

/// `TCA_KIND`, `TCA_OPTIONS`, `TCA_STAB`: the others are statistics.
const KEPT: [u16; 3] = [KIND, OPTIONS, 8];
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// Bits of an attribute's type that say how it is laid out.
const LAYOUT: u16 = 0xc000;
/// `TC_H_INGRESS`: what hangs there is not touched.
const INGRESS: u32 = 0xffff_fff1;
/// Queue disciplines whose classes somebody makes; those of others come with them.
const WITH_CLASSES: [&[u8]; 4] = [b"htb", b"hfsc", b"drr", b"qfq"];
/// HTB tells its version as major and minor number, and takes the major number only.
const HTB_VERSION_TOLD: u32 = 0x0003_0011;
const HTB_VERSION_TAKEN: u32 = 3;

impl Saved {
    /// What device number `index` has.
    pub(super) fn take(index: i32) -> Result<Self, Error> {
        Self::read(index).map_err(|e| Error::Failed(format!("error: qdiscs of interface {index}: {e}")))
    }

    fn read(index: i32) -> Result<Self, ReplyError> {
        let mut socket = NetlinkSocket::new();
        let header = Tcmsg { ifindex: index, ..Tcmsg::default() };
        let mut loose = Vec::new();
        let entry = |what, header: &Tcmsg, attributes: &[u8]| Entry {
            what,
            handle: header.handle,
            parent: header.parent,
            attributes: kept(attributes),
        };
        let request = Request::new().op_getqdisc_dump(&header);
        let mut answer = socket.request(&request)?;
        while let Some(item) = answer.recv() {
            let (header, attributes) = item?;
            // Handle 0: the kernel chose this one, and will choose it again.
            if header.ifindex == index && header.handle != 0 && header.parent != INGRESS {
                loose.push(entry(What::Qdisc, &header, attributes.get_buf()));
            }
        }
        let request = Request::new().set_flags(NLM_F_DUMP as u16).op_gettclass_do(&header);
        let mut answer = socket.request(&request)?;
        while let Some(item) = answer.recv() {
            let (header, attributes) = item?;
            let made = WITH_CLASSES.contains(&attributes.get_kind()?.to_bytes());
            if header.ifindex == index && made {
                loose.push(entry(What::Class, &header, attributes.get_buf()));
            }
        }
        Ok(Self { entries: in_order(loose) })
    }

    /// Whether somebody has put filters there, which cannot be put back as they were.
    pub(super) fn has_filters(&self, index: i32) -> Result<bool, Error> {
        let mut socket = NetlinkSocket::new();
        let mut any = |parent: u32| -> Result<bool, ReplyError> {
            let header = Tcmsg { ifindex: index, parent, ..Tcmsg::default() };
            let request = Request::new().op_gettfilter_dump(&header);
            let mut answer = socket.request(&request)?;
            let mut found = false;
            while let Some(item) = answer.recv() {
                found |= item?.0.ifindex == index;
            }
            Ok(found)
        };
        for entry in &self.entries {
            if any(entry.handle)
                .map_err(|e| Error::Failed(format!("error: filters of interface {index}: {e}")))?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Puts everything back at device number `index`, which has no queue discipline of anybody's.
    pub(super) fn put_back(&self, index: i32) -> Result<(), Error> {
        let mut socket = NetlinkSocket::new();
        for entry in &self.entries {
            if let Err(e) = entry.put(&mut socket, index) {
                let Entry { what, handle, .. } = entry;
                let name = format!("{:x}:{:x}", handle >> 16, handle & 0xffff);
                return Err(Error::Failed(format!("error: put back {what:?} {name}: {e}")));
            }
        }
        let now = Self::take(index)?;
        let same = |a: &Entry, b: &Entry| (a.what, a.handle, a.parent) == (b.what, b.handle, b.parent);
        if now.entries.len() == self.entries.len()
            && now.entries.iter().zip(&self.entries).all(|(a, b)| same(a, b))
        {
            return Ok(());
        }
        Err(Error::Failed(
            "error: the queue disciplines that were put back are not what they were".to_owned(),
        ))
    }
}

impl Entry {
    fn put(&self, socket: &mut NetlinkSocket, index: i32) -> Result<(), ReplyError> {
        let header = Tcmsg { ifindex: index, handle: self.handle, parent: self.parent, ..Tcmsg::default() };
        let new = Request::new().set_create().set_excl();
        match self.what {
            What::Qdisc => {
                let mut request = new.op_newqdisc_do(&header);
                request.encode().as_vec_mut().extend(&self.attributes);
                socket.request(&request)?.recv_ack()
            }
            What::Class => {
                let mut request = new.op_newtclass_do(&header);
                request.encode().as_vec_mut().extend(&self.attributes);
                socket.request(&request)?.recv_ack()
            }
        }
    }
}

/// Takes the queue discipline at the root of device number `index` away, with everything below it.
pub(crate) fn remove_root(index: i32) -> Result<(), Error> {
    let mut socket = NetlinkSocket::new();
    let header = Tcmsg { ifindex: index, parent: ROOT, ..Tcmsg::default() };
    let request = Request::new().op_delqdisc_do(&header);
    let answer = socket.request(&request).map_err(ReplyError::from);
    answer
        .and_then(|mut answer| answer.recv_ack())
        .map_err(|e| Error::Failed(format!("error: remove the root qdisc of interface {index}: {e}")))
}

/// Parents before children: what hangs at the device, then what hangs at something that is there already.
fn in_order(mut loose: Vec<Entry>) -> Vec<Entry> {
    let classes: Vec<u32> = loose.iter().filter(|e| e.what == What::Class).map(|e| e.handle).collect();
    let mut placed: Vec<Entry> = Vec::new();
    while !loose.is_empty() {
        let there = |entry: &Entry| {
            let is_there = |what, handle| placed.iter().any(|p: &Entry| p.what == what && p.handle == handle);
            let class_at_top =
                entry.what == What::Class && (entry.parent == ROOT || entry.parent & 0xffff == 0);
            match entry.parent {
                _ if class_at_top => is_there(What::Qdisc, entry.handle & 0xffff_0000),
                ROOT => true,
                // The classes of some disciplines come with them, and are not on the list.
                parent if classes.contains(&parent) => is_there(What::Class, parent),
                parent => is_there(What::Qdisc, parent & 0xffff_0000),
            }
        };
        let (ready, rest): (Vec<Entry>, Vec<Entry>) = loose.into_iter().partition(there);
        if ready.is_empty() {
            placed.extend(rest);
            break;
        }
        placed.extend(ready);
        loose = rest;
    }
    placed
}

/// The attributes of `raw` that make a queue discipline what it is.
fn kept(raw: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut htb = false;
    let mut rest = raw;
    while let Some((head, _)) = rest.split_at_checked(4) {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & !LAYOUT;
        let Some(attribute) = rest.get(..length).filter(|attribute| attribute.len() >= 4) else { break };
        htb |= kind == KIND && attribute[4..].starts_with(b"htb\0");
        if KEPT.contains(&kind) {
            let start = all.len();
            all.extend(attribute);
            all.resize(all.len().next_multiple_of(4), 0);
            if htb && kind == OPTIONS {
                take_htb_version(&mut all[start..]);
            }
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    all
}

/// Options of HTB begin with an attribute that begins with the version.
fn take_htb_version(options: &mut [u8]) {
    if let Some(version) = options.get_mut(8..12)
        && version == HTB_VERSION_TOLD.to_ne_bytes()
    {
        version.copy_from_slice(&HTB_VERSION_TAKEN.to_ne_bytes());
    }
}

//! Creates, changes in place, reads and removes the kernel's hierarchical token bucket through netlink.
//!
//! A plan comes from a scenario's `htb` queue or from a gateway's deployment. Class 0 of the plan is `1:10`, class 1 is
//! `1:11`, and so on in hexadecimal below the root class `1:1`. A packet whose priority (`skb->priority`, as nftables sets
//! it) names a class goes there; the plan's code points classify the others.

use std::fmt;
use std::io;

use bandmaster_core::params::{Limit, Params};
use bandmaster_core::qdisc::dscp::code_point;
use bandmaster_core::units::{Bytes, Rate};
use netlink_bindings::consts::NLM_F_DUMP;
use netlink_bindings::tc::{
    OptionsMsg, Request, TcFifoQopt, TcHtbGlob, TcHtbOpt, TcRatespec, TcSizespec, TcU32Key, TcU32Sel, Tcmsg,
};
use netlink_socket2::{NetlinkSocket, ReplyError};

/// Major number of the qdisc.
const MAJOR: u32 = 1;
/// Minor number of the class that all others share.
const ROOT_CLASS: u32 = 1;
/// Minor number of the first class.
const FIRST_CLASS: u32 = 0x10;
/// `TC_H_ROOT`: the device itself.
const DEVICE: u32 = u32::MAX;
/// What the kernel's scheduler counts bursts in: 64 ns.
const TICK_NANOS: u64 = 64;
/// `TC_LINKLAYER_ETHERNET`: packets are counted byte by byte, without a table.
const BYTE_BY_BYTE: u8 = 1;
/// `TC_U32_TERMINAL`: a match decides.
const TERMINAL: u8 = 1;
/// `ETH_P_IP`.
const IPV4: u32 = 0x0800;

/// Classes for a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// What the classes have to share.
    pub rate: Rate,
    /// Second limit of all classes together; at least `rate`.
    pub ceil: Rate,
    /// What may leave at once after a silence, as far as `rate` goes.
    pub burst: Bytes,
    /// What may leave at once after a silence, as far as `ceil` goes.
    pub cburst: Bytes,
    /// Classes in order.
    pub classes: Vec<Class>,
    /// Position of the class of packets that nothing else names; none: they leave unshaped, before all others.
    pub default: Option<usize>,
    /// Code points that leave unshaped.
    pub direct: Vec<u8>,
    /// Bytes that count in addition to what the device sees of a packet.
    pub overhead: u8,
    /// Bytes that do not count of what the device sees of a packet, neither for rates nor in counters: a header of the link.
    pub uncounted: u8,
}

/// One class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Class {
    /// Name in messages.
    pub name: String,
    /// What it has in any case; not zero.
    pub rate: Rate,
    /// What it never exceeds; at least `rate`.
    pub ceil: Rate,
    /// What may leave at once after a silence, as far as `rate` goes.
    pub burst: Bytes,
    /// What may leave at once after a silence, as far as `ceil` goes.
    pub cburst: Bytes,
    /// Who borrows first: the least number, 0 to 7.
    pub prio: u8,
    /// What it sends in its turn; none: the kernel's, 0.1 s of `rate` from 1000 to 200000 B.
    pub quantum: Option<Bytes>,
    /// What may wait in it.
    pub limit: Limit,
    /// Code points that go there.
    pub dscp: Vec<u8>,
}

/// Counters of a class since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassStats {
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent, as the device counts them.
    pub bytes: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Packets that wait.
    pub waiting_packets: u32,
    /// Bytes that wait.
    pub waiting_bytes: u32,
}

/// A shaper that is in place at a device. It stays when this is dropped; see [`Htb::remove`].
pub struct Htb {
    socket: NetlinkSocket,
    device: String,
    index: i32,
    plan: Plan,
}

/// Why the kernel did not do it.
#[derive(Debug)]
pub struct HtbError {
    /// What was tried, with the names of device and class.
    pub doing: String,
    /// The kernel's error.
    pub error: io::Error,
    /// The kernel's remark, when it made one.
    pub remark: Option<String>,
}

impl fmt::Display for HtbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.error)?;
        match &self.remark {
            Some(remark) => write!(f, " ({remark})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for HtbError {}

impl Plan {
    /// The plan of a scenario's `htb` queue, whose parameters the scenario's reader has checked.
    pub fn new(params: &Params) -> Self {
        let ceil = |own: &Params| own.rate(if own.get("ceil").is_some() { "ceil" } else { "rate" });
        let points = |own: &Params, key: &str| match own.get(key) {
            Some(_) => own.list(key).iter().filter_map(|name| code_point(name)).collect(),
            None => Vec::new(),
        };
        let limit = params.limit("limit");
        let class = |own: &Params| Class {
            name: own.text("name"),
            rate: own.rate("rate"),
            ceil: ceil(own),
            burst: own.bytes("burst"),
            cburst: own.bytes("cburst"),
            prio: own.integer("prio").clamp(0, 7) as u8,
            quantum: own.get("quantum").map(|_| own.bytes("quantum")),
            limit: own.get("limit").map_or(limit, |_| own.limit("limit")),
            dscp: points(own, "dscp"),
        };
        let mut plan = Self {
            rate: params.rate("rate"),
            ceil: ceil(params),
            burst: params.bytes("burst"),
            cburst: params.bytes("cburst"),
            classes: Vec::new(),
            default: None,
            direct: points(params, "direct"),
            overhead: 0,
            uncounted: 0,
        };
        if params.get("classes").is_some() {
            plan.classes = params.tables("classes").iter().map(class).collect();
            if params.get("default").is_some() {
                let name = params.text("default");
                plan.default = plan.classes.iter().position(|class| class.name == name);
            }
        } else {
            let Self { rate, ceil, burst, cburst, .. } = plan;
            let (name, dscp) = ("all".to_owned(), Vec::new());
            plan.classes.push(Class { name, rate, ceil, burst, cburst, prio: 0, quantum: None, limit, dscp });
            plan.default = Some(0);
        }
        plan
    }
}

/// The handle of a class by its position, as a packet's priority names it.
pub const fn class_handle(class: usize) -> u32 {
    MAJOR << 16 | (FIRST_CLASS + class as u32)
}

/// The handle of a class as `tc` and `nft` write it: `1:10`.
pub fn class_name(class: usize) -> String {
    let handle = class_handle(class);
    format!("{:x}:{:x}", handle >> 16, handle & 0xffff)
}

/// The mark in the number of an HTB's default class: the kernel keeps all of it, and looks at the lower half only.
pub const fn mark(default_class: u32) -> u16 {
    (default_class >> 16) as u16
}

/// The handle of the qdisc.
pub const QDISC: u32 = MAJOR << 16;

/// Whether a class can have these.
pub(crate) fn are_rates(rate: Rate, ceil: Rate) -> bool {
    rate > Rate::ZERO && ceil >= rate
}

impl Htb {
    /// Puts `plan` in place at `device`, in the calling thread's network namespace. Half a shaper is removed again.
    ///
    /// # Errors
    /// When there is no such device, it has another root qdisc that somebody put there, or the kernel refuses.
    pub fn create(device: &str, plan: &Plan) -> Result<Self, HtbError> {
        Self::create_marked(device, plan, 0)
    }

    /// The same, with a mark by which the qdisc is known again ([`mark`]). `plan` has no default class.
    ///
    /// # Errors
    /// As those of [`create`](Self::create).
    pub fn create_marked(device: &str, plan: &Plan, mark: u16) -> Result<Self, HtbError> {
        let mut htb = Self::at(device, plan)?;
        htb.add_qdisc(mark)?;
        match htb.fill() {
            Ok(()) => Ok(htb),
            Err(error) => {
                // The first error is the one to tell.
                let _ = htb.remove();
                Err(error)
            }
        }
    }

    /// The shaper that is in place at `device` already, made from `plan`, in the calling thread's network namespace.
    ///
    /// # Errors
    /// When there is no such device, or it has not this shaper's classes.
    pub fn open(device: &str, plan: &Plan) -> Result<Self, HtbError> {
        let mut htb = Self::at(device, plan)?;
        htb.stats()?;
        Ok(htb)
    }

    /// Gives a class new rates while packets wait; `class` is its position, none: the root class.
    ///
    /// # Errors
    /// When there is no such class, a rate is zero, `ceil` is below `rate`, or the kernel refuses.
    pub fn change(&mut self, class: Option<usize>, rate: Rate, ceil: Rate) -> Result<(), HtbError> {
        if !self.takes(class, rate, ceil) {
            let doing = format!("give class {class:?} of {} rate {rate} and ceil {ceil}", self.device);
            return Err(HtbError { doing, error: io::ErrorKind::InvalidInput.into(), remark: None });
        }
        match class {
            None => {
                (self.plan.rate, self.plan.ceil) = (rate, ceil);
                self.set_root(false)
            }
            Some(at) => {
                (self.plan.classes[at].rate, self.plan.classes[at].ceil) = (rate, ceil);
                self.set_class(at, false)
            }
        }
    }

    /// Whether there is such a class, and it can have such rates.
    pub(crate) fn takes(&self, class: Option<usize>, rate: Rate, ceil: Rate) -> bool {
        class.is_none_or(|at| at < self.plan.classes.len()) && are_rates(rate, ceil)
    }

    /// Counters of all classes, in the plan's order.
    ///
    /// # Errors
    /// When a class is not there.
    pub fn stats(&mut self) -> Result<Vec<ClassStats>, HtbError> {
        let found = self.all_stats()?;
        let class = |(at, stats): (usize, Option<ClassStats>)| {
            stats.ok_or_else(|| HtbError {
                doing: format!("read class {} at {}", self.plan.classes[at].name, self.device),
                error: io::ErrorKind::NotFound.into(),
                remark: None,
            })
        };
        found.into_iter().enumerate().map(class).collect()
    }

    /// How what stands at the device differs from the plan; none: it does not.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn difference(&mut self) -> Result<Option<String>, HtbError> {
        let header = Tcmsg { ifindex: self.index, parent: MAJOR << 16, ..Tcmsg::default() };
        let request = Request::new().set_flags(NLM_F_DUMP as u16).op_gettclass_do(&header);
        let mut standing: Vec<Standing> = Vec::new();
        let mut read = || -> Result<(), ReplyError> {
            let mut answer = self.socket.request(&request)?;
            while let Some(item) = answer.recv() {
                let (header, attrs) = item?;
                if header.ifindex != self.index || header.handle >> 16 != MAJOR {
                    continue;
                }
                let OptionsMsg::Htb(options) = attrs.get_options()? else { continue };
                let options = options.get_parms()?;
                let (rate, ceil) = (options.rate.rate, options.ceil.rate);
                let (handle, parent, leaf) = (header.handle, header.parent, header.info);
                standing.push(Standing { handle, parent, leaf, rate, ceil });
            }
            Ok(())
        };
        let result = read();
        result.map_err(|e| self.failed("read the classes", e))?;
        let mut wanted = vec![Standing::new(MAJOR << 16 | ROOT_CLASS, self.plan.rate, self.plan.ceil)];
        wanted.extend(self.plan.classes.iter().enumerate().map(|(at, class)| Standing {
            parent: MAJOR << 16 | ROOT_CLASS,
            leaf: (class_handle(at) & 0xffff) << 16,
            ..Standing::new(class_handle(at), class.rate, class.ceil)
        }));
        let name = |handle: u32| format!("{:x}:{:x}", handle >> 16, handle & 0xffff);
        let differs = |want: &Standing| {
            let class = name(want.handle);
            match standing.iter().find(|there| there.handle == want.handle) {
                None => Some(format!("class {class} is not there")),
                Some(there) if there.parent != want.parent => Some(format!("class {class} hangs elsewhere")),
                Some(there) if there.leaf != want.leaf => {
                    Some(format!("the queue of class {class} is another"))
                }
                Some(there) if (there.rate, there.ceil) != (want.rate, want.ceil) => Some(format!(
                    "class {class} has {} at most {} instead of {} at most {} B/s",
                    there.rate, there.ceil, want.rate, want.ceil
                )),
                Some(_) => None,
            }
        };
        Ok(wanted.iter().find_map(differs))
    }

    /// Takes the shaper and all its classes away.
    ///
    /// # Errors
    /// When it is not there any more.
    pub fn remove(&mut self) -> Result<(), HtbError> {
        let header = Tcmsg { ifindex: self.index, handle: MAJOR << 16, parent: DEVICE, ..Tcmsg::default() };
        let request = Request::new().op_delqdisc_do(&header);
        let answer = self.socket.request(&request).map_err(ReplyError::from);
        answer.and_then(|mut answer| answer.recv_ack()).map_err(|e| self.failed("remove the htb", e))
    }

    /// What is in place, with the latest rates.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn at(device: &str, plan: &Plan) -> Result<Self, HtbError> {
        let index = nix::net::if_::if_nametoindex(device).map_err(|errno| HtbError {
            doing: format!("find the interface {device}"),
            error: errno.into(),
            remark: None,
        })?;
        Ok(Self {
            socket: NetlinkSocket::new(),
            device: device.to_owned(),
            index: index as i32,
            plan: plan.clone(),
        })
    }

    fn failed(&self, doing: &str, error: ReplyError) -> HtbError {
        let remark = error.ext_ack().and_then(|ack| Some(ack.get_msg().ok()?.to_string_lossy().into_owned()));
        HtbError { doing: format!("{doing} at {}", self.device), error: error.into(), remark }
    }

    fn add_qdisc(&mut self, mark: u16) -> Result<(), HtbError> {
        let header = Tcmsg { ifindex: self.index, handle: MAJOR << 16, parent: DEVICE, ..Tcmsg::default() };
        let mut request = Request::new().set_create().set_excl().op_newqdisc_do(&header);
        let default = self.plan.default.map_or(0, |at| FIRST_CLASS + at as u32);
        let defcls = u32::from(mark) << 16 | default;
        let whole = TcHtbGlob { version: 3, rate2quantum: 10, defcls, ..TcHtbGlob::default() };
        let mut attrs = request.encode();
        if self.plan.uncounted > 0 {
            // Without a table the kernel only adds this.
            let overhead = -i32::from(self.plan.uncounted);
            attrs =
                attrs.nested_stab().push_base(TcSizespec { overhead, ..TcSizespec::default() }).end_nested();
        }
        attrs.nested_options_htb().push_init(whole).push_direct_qlen(1000);
        let answer = self.socket.request(&request).map_err(ReplyError::from);
        answer.and_then(|mut answer| answer.recv_ack()).map_err(|e| self.failed("add an htb", e))
    }

    fn fill(&mut self) -> Result<(), HtbError> {
        self.set_root(true)?;
        for at in 0..self.plan.classes.len() {
            self.set_class(at, true)?;
            self.add_queue(at)?;
        }
        let mut number = 0;
        let direct = self.plan.direct.iter().map(|dscp| (*dscp, MAJOR << 16));
        let classes = self.plan.classes.iter().enumerate();
        let classes =
            classes.flat_map(|(at, class)| class.dscp.iter().map(move |dscp| (*dscp, class_handle(at))));
        for (dscp, handle) in direct.chain(classes).collect::<Vec<_>>() {
            number += 1;
            self.add_filter(number, dscp, handle)?;
        }
        Ok(())
    }

    fn set_root(&mut self, new: bool) -> Result<(), HtbError> {
        let Plan { rate, ceil, burst, cburst, overhead, .. } = self.plan;
        let options = class_options(rate, ceil, burst, cburst, overhead);
        let (parent, handle) = (MAJOR << 16, MAJOR << 16 | ROOT_CLASS);
        self.put_class(parent, handle, options, (rate, ceil), new, "the root class")
    }

    fn set_class(&mut self, at: usize, new: bool) -> Result<(), HtbError> {
        let Class { name, rate, ceil, burst, cburst, prio, quantum, .. } = &self.plan.classes[at];
        let (rate, ceil) = (*rate, *ceil);
        let mut options = class_options(rate, ceil, *burst, *cburst, self.plan.overhead);
        options.prio = u32::from(*prio);
        options.quantum = quantum.map_or(0, |quantum| u32::try_from(quantum.get()).unwrap_or(u32::MAX));
        let name = format!("class {name}");
        self.put_class(MAJOR << 16 | ROOT_CLASS, class_handle(at), options, (rate, ceil), new, &name)
    }

    fn put_class(
        &mut self,
        parent: u32,
        handle: u32,
        options: TcHtbOpt,
        (rate, ceil): (Rate, Rate),
        new: bool,
        name: &str,
    ) -> Result<(), HtbError> {
        let header = Tcmsg { ifindex: self.index, handle, parent, ..Tcmsg::default() };
        let request = Request::new();
        let request = if new { request.set_create().set_excl() } else { request };
        let mut request = request.op_newtclass_do(&header);
        let bytes_per_sec = |rate: Rate| (rate.bits_per_sec() / 8).max(1);
        request
            .encode()
            .nested_options_htb()
            .push_parms(options)
            .push_rate64(bytes_per_sec(rate))
            .push_ceil64(bytes_per_sec(ceil));
        let answer = self.socket.request(&request).map_err(ReplyError::from);
        answer.and_then(|mut answer| answer.recv_ack()).map_err(|e| {
            self.failed(&format!("{} {name} ({rate}, at most {ceil})", if new { "add" } else { "change" }), e)
        })
    }

    fn add_queue(&mut self, at: usize) -> Result<(), HtbError> {
        let parent = class_handle(at);
        let header =
            Tcmsg { ifindex: self.index, handle: (parent & 0xffff) << 16, parent, ..Tcmsg::default() };
        let mut request = Request::new().set_create().set_excl().op_newqdisc_do(&header);
        let attrs = request.encode();
        match self.plan.classes[at].limit {
            Limit::Packets(limit) => attrs.nested_options_pfifo(&TcFifoQopt { limit }),
            Limit::Unlimited => attrs.nested_options_pfifo(&TcFifoQopt { limit: u32::MAX }),
            Limit::Bytes(bytes) => {
                let limit = u32::try_from(bytes.get()).unwrap_or(u32::MAX);
                attrs.nested_options_bfifo(&TcFifoQopt { limit })
            }
        };
        let doing = format!("add the queue of class {}", self.plan.classes[at].name);
        let answer = self.socket.request(&request).map_err(ReplyError::from);
        answer.and_then(|mut answer| answer.recv_ack()).map_err(|e| self.failed(&doing, e))
    }

    /// Filter `number` sends IPv4 packets with `dscp` to `handle`.
    fn add_filter(&mut self, number: u32, dscp: u8, handle: u32) -> Result<(), HtbError> {
        let protocol = (IPV4 as u16).to_be();
        let header = Tcmsg {
            ifindex: self.index,
            parent: MAJOR << 16,
            info: number << 16 | u32::from(protocol),
            ..Tcmsg::default()
        };
        let mut request = Request::new().set_create().set_excl().op_newtfilter_do(&header);
        // The second byte of the IPv4 header, without the two bits of ECN.
        let mut key = TcU32Key::default();
        key.set_mask(0x00fc_0000);
        key.set_val(u32::from(dscp) << 18);
        let sel = TcU32Sel { flags: TERMINAL, nkeys: 1, keys: key, ..TcU32Sel::default() };
        request.encode().nested_options_u32().push_classid(handle).push_sel(sel);
        let doing = format!("add the filter of code point {dscp}");
        let answer = self.socket.request(&request).map_err(ReplyError::from);
        answer.and_then(|mut answer| answer.recv_ack()).map_err(|e| self.failed(&doing, e))
    }

    /// One dump: asked for a single class, the kernel tells those who watch, and not who asks.
    fn all_stats(&mut self) -> Result<Vec<Option<ClassStats>>, HtbError> {
        let header = Tcmsg { ifindex: self.index, parent: MAJOR << 16, ..Tcmsg::default() };
        let request = Request::new().set_flags(NLM_F_DUMP as u16).op_gettclass_do(&header);
        let mut found = vec![None; self.plan.classes.len()];
        let mut read = || -> Result<(), ReplyError> {
            let mut answer = self.socket.request(&request)?;
            while let Some(item) = answer.recv() {
                let (header, attrs) = item?;
                let at = (header.handle & 0xffff).wrapping_sub(FIRST_CLASS) as usize;
                let ours = header.ifindex == self.index && header.handle >> 16 == MAJOR;
                let Some(place) = found.get_mut(at).filter(|_| ours) else { continue };
                let stats = attrs.get_stats2()?;
                let (basic, queue) = (stats.get_basic()?, stats.get_queue()?);
                // Packed: copied, not borrowed.
                let (bytes, packets) = (basic.bytes, basic.packets);
                *place = Some(ClassStats {
                    packets: packets.into(),
                    bytes,
                    drops: queue.drops.into(),
                    waiting_packets: queue.qlen,
                    waiting_bytes: queue.backlog,
                });
            }
            Ok(())
        };
        let result = read();
        result.map(|()| found).map_err(|e| self.failed("read the classes", e))
    }
}

/// A class as the kernel tells it; rates in bytes a second, as far as 32 bits go.
struct Standing {
    handle: u32,
    parent: u32,
    /// Of its queue; the root class has none.
    leaf: u32,
    rate: u32,
    ceil: u32,
}

impl Standing {
    fn new(handle: u32, rate: Rate, ceil: Rate) -> Self {
        let told = |rate: Rate| u32::try_from((rate.bits_per_sec() / 8).max(1)).unwrap_or(u32::MAX);
        Self { handle, parent: DEVICE, leaf: 0, rate: told(rate), ceil: told(ceil) }
    }
}

fn class_options(rate: Rate, ceil: Rate, burst: Bytes, cburst: Bytes, overhead: u8) -> TcHtbOpt {
    // Rates of 2^32 byte/s and more are stated in the 64-bit attributes only.
    let spec = |rate: Rate| TcRatespec {
        linklayer: BYTE_BY_BYTE,
        overhead,
        rate: u32::try_from(rate.bits_per_sec() / 8).unwrap_or(u32::MAX).max(1),
        ..TcRatespec::default()
    };
    let ticks = |rate: Rate, burst: Bytes| {
        u32::try_from(rate.time_for(burst).as_nanos() / TICK_NANOS).unwrap_or(u32::MAX)
    };
    TcHtbOpt {
        rate: spec(rate),
        ceil: spec(ceil),
        buffer: ticks(rate, burst),
        cbuffer: ticks(ceil, cburst),
        ..TcHtbOpt::default()
    }
}

//! Loads the programs of `bpf/order.c`, tells them what to count, and reads what they noted.

use std::net::IpAddr;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData};
use aya::programs::BtfTracePoint;
use aya::programs::links::LinkOrder;
use aya::programs::tc::{SchedClassifier, SchedClassifierLinkId, TcAttachOptions, TcAttachType};
use bandmaster_core::control::Passed;
use bandmaster_core::scheme::er2bc::deployment::{Deployment, Match, Prefix, Protocol, Role, Whereabouts};

use super::{Direction, Note};
use crate::gateway::counters::link_header;
use crate::gateway::{device, journal};
use crate::htb::class_handle;
use crate::kernel::{self, NoProgram, map, program, refused};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/order.o");

/// Program, and the tracepoint that it is attached to: what a queue discipline gives away.
const DEPARTURES: (&str, &str) = ("departs", "qdisc_dequeue");
const ARRIVALS: &str = "arrives";

const SETTINGS: usize = 44;
const RULE: usize = 112;
const MOST_RULES: usize = 64;
const MOST_PORTS: usize = 8;
const QUESTION: usize = 24;
const PAYLOAD: usize = 20;

/// Counts and notes: as many bytes, in the order of this machine, as in `bpf/order.c`.
type Settings = Array<MapData, [u8; SETTINGS]>;
type Rules = Array<MapData, [u8; RULE]>;
type Counts = Array<MapData, [u64; 2]>;
type Notes = HashMap<MapData, [u8; QUESTION], [u64; 3]>;

/// The programs at work; they end with it.
pub(in crate::gateway) struct Order {
    kernel: Ebpf,
    role: Role,
    settings: Settings,
    rules: Rules,
    counts: Counts,
    notes: Notes,
    sent: Sent,
    /// Device, and the link of the program that sees what arrives there.
    at: Option<(i32, Option<SchedClassifierLinkId>)>,
}

impl Order {
    /// Lets the kernel check the programs that `role` needs.
    pub(super) fn load(role: Role) -> Result<Self, NoProgram> {
        let mut kernel = kernel::load(OBJECT)?;
        let settings = Array::try_from(map(&mut kernel, "SETTINGS")?).map_err(refused)?;
        let rules = Array::try_from(map(&mut kernel, "RULES")?).map_err(refused)?;
        let counts = Array::try_from(map(&mut kernel, "COUNTS")?).map_err(refused)?;
        let notes = HashMap::try_from(map(&mut kernel, "NOTES")?).map_err(refused)?;
        let mut new = Self { kernel, role, settings, rules, counts, notes, sent: Sent::default(), at: None };
        if role != Role::Receiver {
            let types = kernel::types()?;
            new.departures()?.load(DEPARTURES.1, &types).map_err(refused)?;
        }
        if role != Role::Sender {
            new.arrivals()?.load().map_err(refused)?;
        }
        Ok(new)
    }

    /// Begins to count for `deployment`, from nothing.
    pub(in crate::gateway) fn attach(deployment: &Deployment) -> Result<Self, NoProgram> {
        if deployment.whereabouts != Whereabouts::Fixed {
            return Err(NoProgram::new("the peer's address is not fixed".to_owned()));
        }
        let mut new = Self::load(deployment.role)?;
        new.sent.header = link_header(&deployment.interface).into();
        new.follow(deployment)?;
        if new.role != Role::Receiver {
            new.departures()?.attach().map_err(refused)?;
        }
        Ok(new)
    }

    /// Goes to the device of that name, when it is another one than before; whether it was.
    pub(in crate::gateway) fn follow(&mut self, deployment: &Deployment) -> Result<bool, NoProgram> {
        let index = device::index(&deployment.interface).map_err(|e| NoProgram::new(e.to_string()))?;
        if self.at.as_ref().is_some_and(|(at, _)| *at == index) {
            return Ok(false);
        }
        if let Some((_, Some(link))) = self.at.take() {
            // With its device the link has lost its program.
            let _ = self.arrivals()?.detach(link);
        }
        self.tell(deployment, index)?;
        let link = if self.role == Role::Sender {
            None
        } else {
            let options = TcAttachOptions::TcxOrder(LinkOrder::default());
            let attached =
                self.arrivals()?.attach_with_options(&deployment.interface, TcAttachType::Ingress, options);
            Some(attached.map_err(refused)?)
        };
        self.at = Some((index, link));
        Ok(true)
    }

    /// Counts by another deployment of the same role and interface; the counts go on.
    pub(in crate::gateway) fn set(&mut self, deployment: &Deployment) -> Result<(), NoProgram> {
        match self.at {
            Some((index, _)) => self.tell(deployment, index),
            None => Ok(()),
        }
    }

    fn tell(&mut self, deployment: &Deployment, index: i32) -> Result<(), NoProgram> {
        let rules = deployment.data.iter().flat_map(compile).collect::<Vec<_>>();
        if rules.len() > MOST_RULES {
            return Err(NoProgram::new(format!(
                "data: {} combinations of source, destination and ports; the program in the kernel takes {MOST_RULES}",
                rules.len()
            )));
        }
        for (number, rule) in (0..).zip(&rules) {
            self.rules.set(number, rule, 0).map_err(refused)?;
        }
        let settings = settings(deployment, index as u32, journal::namespace() as u32, rules.len() as u32);
        self.settings.set(0, settings, 0).map_err(refused)
    }

    /// What had passed before `question`; none when the program has not seen it leave or arrive. A second call gives none.
    pub(in crate::gateway) fn take(&mut self, direction: Direction, question: &[u8]) -> Option<Note> {
        let key = key(direction, question)?;
        let [packets, bytes, at] = self.notes.get(&key, 0).ok()?;
        // One that the kernel has thrown out meanwhile is out as well.
        let _ = self.notes.remove(&key);
        let passed = Passed { packets, bytes };
        Some(Note { passed: if direction == Direction::Sent { self.sent.up_to(passed) } else { passed }, at })
    }

    /// Data received so far.
    pub(in crate::gateway) fn received(&self) -> Option<Passed> {
        let [packets, bytes] = self.counts.get(&0, 0).ok()?;
        Some(Passed { packets, bytes })
    }

    /// The shaper is new: its counters begin at nothing.
    pub(in crate::gateway) fn begin_anew(&mut self) {
        self.sent.begin_anew();
    }

    fn departures(&mut self) -> Result<&mut BtfTracePoint, NoProgram> {
        program(&mut self.kernel, DEPARTURES.0)
    }

    fn arrivals(&mut self) -> Result<&mut SchedClassifier, NoProgram> {
        program(&mut self.kernel, ARRIVALS)
    }
}

/// Makes one sum of what the queues of one shaper after the other have sent, in bytes of IP.
#[derive(Default)]
struct Sent {
    /// By shapers before this one, as far as it was noted.
    before: Passed,
    last: Passed,
    /// Bytes of a packet that the device counts before IP.
    header: u64,
}

impl Sent {
    fn up_to(&mut self, counted: Passed) -> Passed {
        let Passed { packets, bytes } = counted;
        self.last = Passed {
            packets: self.before.packets + packets,
            bytes: self.before.bytes + bytes.saturating_sub(packets * self.header),
        };
        self.last
    }

    fn begin_anew(&mut self) {
        self.before = self.last;
    }
}

/// `struct settings`.
fn settings(deployment: &Deployment, interface: u32, namespace: u32, rules: u32) -> [u8; SETTINGS] {
    let classes = deployment.sender.as_ref().map_or(0, |sender| sender.classes.len() as u32);
    let (family, peer) = address(deployment.peer.ip());
    let mut words = Bytes::<SETTINGS>::new();
    for word in [interface, namespace, class_handle(0), classes, rules] {
        words.push(&word.to_ne_bytes());
    }
    words.push(&deployment.peer.port().to_be_bytes());
    words.push(&deployment.listen.port().to_be_bytes());
    words.push(&u32::from(family).to_ne_bytes());
    words.push(&peer);
    words.bytes
}

/// `struct rule`: one for each combination of addresses, and of as many ports as one takes.
fn compile(rule: &Match) -> Vec<[u8; RULE]> {
    let some = |prefixes: &[Prefix]| -> Vec<Option<Prefix>> {
        if prefixes.is_empty() { vec![None] } else { prefixes.iter().copied().map(Some).collect() }
    };
    let ports: Vec<&[(u16, u16)]> =
        if rule.ports.is_empty() { vec![&[]] } else { rule.ports.chunks(MOST_PORTS).collect() };
    let code_points = rule.dscp.iter().fold(0u64, |all, point| all | 1 << (point & 63));
    let protocol = match rule.protocol {
        None => 0,
        Some(Protocol::Tcp) => libc::IPPROTO_TCP as u8,
        Some(Protocol::Udp) => libc::IPPROTO_UDP as u8,
    };
    let mut all = Vec::new();
    for source in some(&rule.source) {
        for destination in some(&rule.destination) {
            for ports in &ports {
                let mut bytes = Bytes::<RULE>::new();
                for prefix in [source, destination] {
                    let (value, mask) = prefix.map_or(([0; 16], [0; 16]), |prefix| {
                        (
                            address(prefix.address).1,
                            (u128::MAX.checked_shl(128 - u32::from(prefix.length)).unwrap_or(0))
                                .to_be_bytes(),
                        )
                    });
                    bytes.push(&value);
                    bytes.push(&mask);
                }
                let family = source.or(destination).map_or(0, |prefix| address(prefix.address).0);
                bytes.push(&code_points.to_ne_bytes());
                bytes.push(&[family, protocol, ports.len() as u8, 0, 0, 0, 0, 0]);
                for (low, high) in *ports {
                    bytes.push(&low.to_ne_bytes());
                    bytes.push(&high.to_ne_bytes());
                }
                all.push(bytes.bytes);
            }
        }
    }
    all
}

/// Version of IP, and the bytes of an address, an IPv4 address before zeros.
fn address(address: IpAddr) -> (u8, [u8; 16]) {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            (4, bytes)
        }
        IpAddr::V6(address) => (6, address.octets()),
    }
}

/// `struct question`; none for what is no question.
fn key(direction: Direction, question: &[u8]) -> Option<[u8; QUESTION]> {
    if question.len() > PAYLOAD {
        return None;
    }
    let mut bytes = Bytes::<QUESTION>::new();
    bytes.push(&(direction as u32).to_ne_bytes());
    bytes.push(question);
    Some(bytes.bytes)
}

/// Bytes that are filled from the front; the rest is zero.
struct Bytes<const N: usize> {
    bytes: [u8; N],
    filled: usize,
}

impl<const N: usize> Bytes<N> {
    fn new() -> Self {
        Self { bytes: [0; N], filled: 0 }
    }

    fn push(&mut self, more: &[u8]) {
        let end = self.filled + more.len();
        self.bytes[self.filled..end].copy_from_slice(more);
        self.filled = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3 packets of 114 bytes with their header of 14, then a new shaper, and 2 of 64.
    #[test]
    fn sums_go_on_behind_a_new_shaper() {
        let mut sent = Sent { header: 14, ..Sent::default() };
        assert_eq!(sent.up_to(Passed { packets: 3, bytes: 342 }), Passed { packets: 3, bytes: 300 });
        sent.begin_anew();
        assert_eq!(sent.up_to(Passed { packets: 2, bytes: 128 }), Passed { packets: 5, bytes: 400 });
    }

    /// Two sources, one destination, nine ranges of ports: four combinations of at most eight ranges.
    #[test]
    fn a_rule_becomes_its_combinations() {
        let prefix = |text: &str, length| Prefix { address: text.parse().expect("an address"), length };
        let rule = Match {
            dscp: vec![46, 0],
            source: vec![prefix("10.1.0.0", 16), prefix("10.2.0.0", 15)],
            destination: vec![prefix("10.3.0.1", 32)],
            protocol: Some(Protocol::Udp),
            ports: (0..9).map(|i| (5000 + i, 5000 + i)).collect(),
        };
        let all = compile(&rule);
        assert_eq!(all.len(), 4);
        assert_eq!((&all[2][..4], &all[2][16..21]), (&[10, 2, 0, 0][..], &[255, 254, 0, 0, 0][..]));
        assert_eq!((&all[0][32..36], &all[0][48..53]), (&[10, 3, 0, 1][..], &[255, 255, 255, 255, 0][..]));
        assert_eq!(all[0][64..72], (1u64 << 46 | 1).to_ne_bytes());
        assert_eq!((&all[0][72..75], &all[1][72..75]), (&[4, 17, 8][..], &[4, 17, 1][..]));
        assert_eq!(all[1][80..84], [5008u16.to_ne_bytes(), 5008u16.to_ne_bytes()].concat());
        assert_eq!(compile(&Match::default()), [[0; RULE]]);
    }
}

//! FBQM at a router's ports: an HTB with a class for each class of flows, and a program that sorts packets into them.

use std::path::Path;
use std::sync::Arc;

use bandmaster_core::params::{Limit, Params};
use bandmaster_core::switch::fbqm::bytes;
use bandmaster_core::switch::{Deployment, Port as Place};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Bytes, Rate};
use sd_notify::NotifyState;
use tracing::{info, warn};

use super::Loaded;
use super::journal::{Entry, Written};
use super::life::Work;
use super::plan::{Plan, sockets};
use super::status::{ClassStatus, PortStatus, Shared, Status, lock};
use crate::daemon::Error;
use crate::daemon::signals::{End, Signals};
use crate::daemon::state::{JOURNAL, Journal, State, boot, elsewhere, namespace};
use crate::gateway::device::{self, RootQdisc};
use crate::gateway::install::{draw, named};
use crate::gateway::journal::Made;
use crate::gateway::saved::remove_root;
use crate::htb::{self, ClassStats, Htb};
use crate::kernel::NoProgram;
use crate::kernel::fbqm::Classes;
use crate::kernel::windows::now;

/// Status and faults are looked at so often.
const BEAT: Span = Span::from_millis(200);
/// What an HTB may send at once after a silence: a full frame, or this much of its time.
const BURST: Bytes = Bytes::new(1600);
const BURST_TIME: Span = Span::from_micros(100);
/// Beside the limit, so that a class is never full before the port is: packets that offload cuts are as long.
const ROOM: u64 = 1 << 16;

/// A router with FBQM at its ports.
pub(super) struct Machine {
    loaded: Loaded,
    shared: Shared,
    /// None on a dry run.
    written: Option<Written>,
    /// What was made, of which some may be gone.
    made: Vec<Made>,
    ports: Vec<Port>,
}

struct Port {
    place: Place,
    at_work: Option<AtWork>,
    /// Why nothing is at work.
    trouble: Option<String>,
}

struct AtWork {
    index: i32,
    classes: Classes,
    /// None on a dry run.
    htb: Option<Htb>,
    /// Of each class, in the last interval.
    flows: Vec<u64>,
}

fn lacking(why: &NoProgram) -> Error {
    Error::Missing(format!(
        "error: the kernel takes no program that sorts packets: {why}; it needs CAP_BPF and CAP_NET_ADMIN, and Linux 6.6"
    ))
}

/// Classes of equal rates and quanta.
fn shaper(params: &Params, rate: Rate) -> htb::Plan {
    let classes = params.integer("classes") as usize;
    let burst = Bytes::new(rate.bytes_in(BURST_TIME).get().max(BURST.get()));
    let share = Rate::from_bits_per_sec((rate.bits_per_sec() / classes as u64).max(1));
    let room = bytes(params, params.limit("limit")).unwrap_or_default().get() + ROOM;
    let class = |number: usize| htb::Class {
        name: number.to_string(),
        rate: share,
        ceil: rate,
        burst,
        cburst: burst,
        prio: 0,
        quantum: Some(params.bytes("quantum")),
        limit: Limit::Bytes(Bytes::new(room)),
        dscp: Vec::new(),
    };
    htb::Plan {
        rate,
        ceil: rate,
        burst,
        cburst: burst,
        classes: (0..classes).map(class).collect(),
        // What the program does not see, as after it was killed, still waits its turn.
        default: Some(0),
        direct: Vec::new(),
        overhead: 0,
        uncounted: 0,
    }
}

/// The qdisc that somebody has put at the device, unless it is one of `made`.
fn foreign(index: i32, made: &[Made]) -> Result<Option<RootQdisc>, Error> {
    let there = device::root_qdisc(index)?.filter(RootQdisc::foreign);
    Ok(there.filter(|qdisc| !is_ours(qdisc, index, made)))
}

fn is_ours(qdisc: &RootQdisc, index: i32, made: &[Made]) -> bool {
    made.contains(&Made { kind: qdisc.kind.clone(), handle: qdisc.handle, index, mark: qdisc.mark })
}

/// Why nothing can be put at the port; none: it can.
fn obstacle(interface: &str, made: &[Made]) -> Result<i32, Error> {
    let index = device::index(interface)?;
    device::fit(interface)?;
    match foreign(index, made)? {
        None => Ok(index),
        Some(qdisc) => Err(Error::Missing(format!(
            "error: interface {interface} has the qdisc {} of somebody else; remove it (tc qdisc del dev {interface} root)",
            named(&qdisc)
        ))),
    }
}

/// Puts a program at a port, and unless it is a dry run an HTB. The program is first: where it cannot be, no HTB comes and goes
/// with each try.
fn put(
    params: &Params,
    Place { interface, rate }: &Place,
    journal: Option<&mut Journal<Entry>>,
    made: &mut Vec<Made>,
) -> Result<AtWork, Error> {
    let index = if journal.is_some() { obstacle(interface, made)? } else { device::index(interface)? };
    let mut classes = Classes::load(params, *rate, journal.is_some()).map_err(|why| lacking(&why))?;
    let mut mark = None;
    if let Some(journal) = journal {
        take_away(index, made)?;
        // One that is written down already is that of a try that failed, or of an HTB that somebody took away.
        mark = Some(match made.iter().find(|made| made.index == index) {
            Some(made) => made.mark,
            None => {
                let new = Made { kind: "htb".to_owned(), handle: htb::QDISC, index, mark: draw() };
                journal.write(&Entry::Shape { interface: interface.clone(), made: new.clone() })?;
                journal.write(&Entry::Follow { interface: interface.clone() })?;
                made.push(new);
                made[made.len() - 1].mark
            }
        });
    }
    classes.attach(interface).map_err(|why| lacking(&why))?;
    let create = |mark| Htb::create_marked(interface, &shaper(params, *rate), mark);
    let htb = mark
        .map(create)
        .transpose()
        .map_err(|e| Error::Missing(format!("error: {e}; it needs CAP_NET_ADMIN")))?;
    Ok(AtWork { index, classes, htb, flows: vec![0; params.integer("classes") as usize] })
}

/// Takes the HTB at the device away when it is one of `made`.
fn take_away(index: i32, made: &[Made]) -> Result<(), Error> {
    match device::root_qdisc(index)? {
        Some(qdisc) if is_ours(&qdisc, index, made) => remove_root(index),
        _ => Ok(()),
    }
}

impl Machine {
    /// Puts HTBs and programs at the ports.
    pub(super) fn new(loaded: Loaded, state: Option<State<Entry>>) -> Result<Self, Error> {
        let deployment = &loaded.deployment;
        let written = super::journal::begin(state)?;
        let status = Status::begin(&loaded, written.is_none());
        let port = |place: &Place| Port { place: place.clone(), at_work: None, trouble: None };
        let ports = deployment.ports.iter().map(port).collect();
        let mut new = Self { loaded, shared: Arc::new(status.into()), written, made: Vec::new(), ports };
        for at in 0..new.ports.len() {
            if let Err(error) = new.ensure(at) {
                // The first error is the one to tell; a journal that stays is for `restore`.
                let _ = new.end();
                return Err(error);
            }
        }
        Ok(new)
    }

    /// Puts at a port what is not there, or not there any more.
    fn ensure(&mut self, at: usize) -> Result<(), Error> {
        let Self { loaded, written, made, ports, .. } = self;
        let Port { place, at_work, .. } = &mut ports[at];
        let interface = &place.interface;
        if let Some(work) = at_work.as_mut().filter(|work| device::index(interface) == Ok(work.index)) {
            let there = device::root_qdisc(work.index)?;
            let is_there = written.is_none() || there.is_some_and(|qdisc| is_ours(&qdisc, work.index, made));
            if is_there && (work.is_attached()? || work.classes.attach(interface).is_ok()) {
                return Ok(());
            }
        }
        *at_work = None;
        let put = put(&loaded.deployment.params, place, written.as_mut().map(|(_, journal)| journal), made);
        if put.is_err()
            && let Ok(index) = device::index(interface)
        {
            // Without the program everything would wait in one class. The first error is the one to tell.
            let _ = take_away(index, made);
        }
        *at_work = Some(put?);
        Ok(())
    }

    fn end_interval(&mut self) {
        for Port { at_work, trouble, .. } in &mut self.ports {
            if let Some(work) = at_work {
                match work.classes.end_interval() {
                    Ok(flows) => work.flows = flows,
                    Err(why) => *trouble = Some(why.to_string()),
                }
            }
        }
    }

    fn beat(&mut self) {
        for at in 0..self.ports.len() {
            let trouble = self.ensure(at).err().map(|why| why.to_string().replacen("error: ", "", 1));
            self.ports[at].trouble = trouble;
        }
        let mut unread = 0;
        let mut told = Vec::new();
        for Port { place, at_work, trouble } in &mut self.ports {
            let port = PortStatus { interface: place.interface.clone(), ..PortStatus::default() };
            let port = match at_work.as_mut().map(|work| work.status(port.clone())) {
                None => port,
                Some(Ok((status, more))) => {
                    unread += more;
                    status
                }
                Some(Err(why)) => {
                    trouble.get_or_insert(why);
                    port
                }
            };
            told.push(port);
        }
        let name =
            |port: &Port| Some(format!("interface {}: {}", port.place.interface, port.trouble.as_ref()?));
        let faults: Vec<String> = self.ports.iter().filter_map(name).collect();
        let sum =
            |value: fn(&ClassStatus) -> u64| told.iter().flat_map(|port| &port.classes).map(value).sum();
        let packets = [
            ("sent", sum(|class| class.packets)),
            ("early", sum(|class| class.early)),
            ("marked", sum(|class| class.marked)),
            ("full", sum(|class| class.full)),
            ("unread", unread),
        ];
        let mut status = lock(&self.shared);
        for fault in faults.iter().filter(|fault| !status.faults.contains(fault)) {
            warn!(%fault, "fault");
        }
        for fault in status.faults.iter().filter(|fault| !faults.contains(fault)) {
            info!(%fault, "over");
        }
        status.packets = packets.map(|(kind, count)| (kind.to_owned(), count)).to_vec();
        status.ports = told;
        status.faults = faults;
    }
}

impl AtWork {
    /// Whether the program is where it was put.
    fn is_attached(&mut self) -> Result<bool, Error> {
        let index = u32::try_from(self.index).unwrap_or_default();
        self.classes.is_attached(index).map_err(|why| Error::Failed(format!("error: {why}")))
    }

    /// What is at the port, and how many packets could not be read.
    fn status(&mut self, port: PortStatus) -> Result<(PortStatus, u64), String> {
        let arrivals = self.classes.arrivals().map_err(|why| why.to_string())?;
        let unread = self.classes.unread().map_err(|why| why.to_string())?;
        let sent = match &mut self.htb {
            Some(htb) => htb.stats().map_err(|why| why.to_string())?,
            // Nothing is held up: what arrives is sent.
            None => {
                let sent = |class: &crate::kernel::fbqm::Arrivals| ClassStats {
                    packets: class.packets,
                    bytes: class.bytes,
                    ..ClassStats::default()
                };
                arrivals.iter().map(sent).collect()
            }
        };
        let class =
            |(at, (arrived, sent)): (usize, (&crate::kernel::fbqm::Arrivals, &ClassStats))| ClassStatus {
                class: htb::class_name(at),
                flows: self.flows[at],
                packets: sent.packets,
                bytes: sent.bytes,
                early: arrived.early,
                marked: arrived.marked,
                full: arrived.full + sent.drops + if at == 0 { unread.full } else { 0 },
                waiting: sent.waiting_packets.into(),
                backlog: sent.waiting_bytes.into(),
            };
        let classes: Vec<ClassStatus> = arrivals.iter().zip(&sent).enumerate().map(class).collect();
        let port = PortStatus {
            flows: self.flows.iter().sum(),
            backlog: classes.iter().map(|class| class.backlog).sum(),
            average: Some(self.classes.average().map_err(|why| why.to_string())?),
            classes,
            ..port
        };
        Ok((port, unread.packets))
    }
}

impl Work for Machine {
    fn folder(&self) -> Option<&Path> {
        self.written.as_ref().map(|(state, _)| state.folder())
    }

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn until_signal(&mut self, signals: &Signals) -> Result<End, Error> {
        let interval = self.loaded.deployment.params.span("interval");
        let (mut next_beat, mut next_end) = (Time::ZERO, now() + interval);
        self.beat();
        let _ = sd_notify::notify(false, &[NotifyState::Ready]);
        loop {
            if let Some(end) = signals.end() {
                return Ok(end);
            }
            if signals.reload() {
                info!("a switch does not read its file again: restart it");
            }
            let at = now();
            if next_end <= at {
                self.end_interval();
                // One that is late is a longer interval, not two.
                next_end = if at.since(next_end) < interval { next_end + interval } else { at + interval };
            }
            if next_beat <= at {
                self.beat();
                next_beat = at + BEAT;
                let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
            }
            signals.wait(&[], next_end.min(next_beat).since(now()))?;
        }
    }

    fn end(self) -> Result<(), Error> {
        let Self { ports, written, .. } = self;
        // Programs before their classes.
        drop(ports);
        written.map_or(Ok(()), |(state, _)| super::journal::undo(&state).map(drop))
    }
}

/// Takes away the HTBs that a journal proves to be a switch's. None: it has none.
pub(super) fn undo(state: &State<Entry>, entries: &[Entry]) -> Result<Option<Vec<String>>, Error> {
    let shape = |entry: &Entry| match entry {
        Entry::Shape { interface, made } => Some((interface.clone(), made.clone())),
        Entry::Begin { .. } | Entry::Follow { .. } => None,
    };
    let (interfaces, made): (Vec<String>, Vec<Made>) = entries.iter().filter_map(shape).unzip();
    let Some(Entry::Begin { boot: life, namespace: place, .. }) = entries.first() else { return Ok(None) };
    if made.is_empty() {
        return Ok(None);
    }
    if *life != boot() {
        return Ok(Some(vec!["the machine has restarted, which undid everything".to_owned()]));
    }
    if *place != namespace() {
        let forget = format!("`rm {}`", state.folder().join(JOURNAL).display());
        return Err(elsewhere("switch", &interfaces.join(", "), *place, &forget));
    }
    let mut said: Vec<String> = Vec::new();
    for (Made { index, .. }, interface) in made.iter().zip(&interfaces) {
        let what = match device::name(*index) {
            None => format!("interface {interface} is gone, and the changes to it with it"),
            Some(name) => match device::root_qdisc(*index)?.filter(RootQdisc::foreign) {
                Some(qdisc) if is_ours(&qdisc, *index, &made) => {
                    remove_root(*index)?;
                    format!("removed the htb from {name}")
                }
                Some(qdisc) => {
                    format!("left the qdisc {} of {name}: somebody else has put it there", named(&qdisc))
                }
                None => format!("{name} has no htb any more"),
            },
        };
        said.push(what);
    }
    said.dedup();
    Ok(Some(said))
}

/// What FBQM would change.
pub(super) fn plan(loaded: &Loaded) -> Plan {
    let deployment: &Deployment = &loaded.deployment;
    let params = &deployment.params;
    let mut obstacles = Vec::new();
    if let Some(Place { rate, .. }) = deployment.ports.first()
        && let Err(why) = Classes::load(params, *rate, true)
    {
        obstacles.push(lacking(&why).to_string());
    }
    let of_ports = deployment.ports.iter().filter_map(|port| obstacle(&port.interface, &[]).err());
    obstacles.extend(of_ports.map(|error| error.to_string()));
    if super::status(Path::new(&deployment.state_directory)).is_ok() {
        obstacles.push(format!("error: a switch runs with {}", deployment.state_directory));
    }
    let (limit, lower, upper) = (params.limit("limit"), params.limit("min-th"), params.limit("max-th"));
    let classes = params.integer("classes");
    let port = |Place { interface, rate }: &Place| {
        let held = bytes(params, limit).unwrap_or_default();
        let share = shaper(params, *rate).classes[0].rate;
        format!(
            "{interface} {rate}: {classes} classes of {share} at least, {limit} ({}) wait at most, dropped early from {lower} to \
             {upper} on average",
            rate.time_for(held)
        )
    };
    let merging = |Place { interface, .. }: &Place| {
        let on = device::offloads(interface);
        (!on.is_empty()).then(|| {
            format!(
                "{interface} has {} on: a merged packet is up to 64 KiB of the limit (ethtool -K {interface} {} off)",
                on.join(", "),
                on.join(" off ")
            )
        })
    };
    let interfaces: Vec<&str> = deployment.ports.iter().map(|port| port.interface.as_str()).collect();
    let interfaces = interfaces.join(", ");
    let last = htb::class_name(classes as usize - 1);
    let memory = 4 * 16 * params.integer("cells") as u64 / 1024;
    Plan {
        obstacles,
        ports: deployment.ports.iter().flat_map(|each| [Some(port(each)), merging(each)]).flatten().collect(),
        changes: vec![
            format!(
                "an htb at {interfaces} in the place of the kernel's own queue: classes {} to {last}, each with a bfifo",
                htb::class_name(0)
            ),
            format!(
                "a program (eBPF, tcx) at {interfaces}, with {memory} KiB each: it gives each packet its class, or drops it"
            ),
            "no parameter, route or interface is changed; other programs at the ports stay".to_owned(),
        ],
        sockets: sockets(deployment),
        undo: vec![
            "SIGTERM takes the program and the htb away; the kernel puts its own queue back".to_owned(),
            format!(
                "after a kill the program is gone and the htb stays, with everything in class {}; `restore` takes it away",
                htb::class_name(0)
            ),
        ],
    }
}

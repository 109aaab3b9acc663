//! The host of a switch's programs: what the kernel sees goes to the law, and the law's windows go to the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bandmaster_core::id::FlowId;
use bandmaster_core::port::window::{AckVerdict, Offset, Segment, WindowProgram};
use bandmaster_core::runtime::{Host, Lacks};
use bandmaster_core::scheme::{Act, Program};
use bandmaster_core::time::{Span, Time};
use tracing::{debug, info, warn};

use super::journal::{Entry, Written};
use super::plan::devices;
use super::queue::queues;
use super::status::{PortStatus, Shared, Status, lock};
use super::{Loaded, lacking};
use crate::daemon::Error;
use crate::daemon::state::State;
use crate::kernel::NoProgram;
use crate::kernel::windows::{Flow, Kind, Windows, now};

/// A handshake that is not complete after so long is forgotten: SYNs are repeated for about as long.
pub(super) const HANDSHAKE: Span = Span::from_secs(60);

/// Segments of the window of a flow of which the law has not spoken, as the law has it.
const FIRST: u32 = 1;

/// Events that are heard before flows are looked at.
pub(super) const EVENTS: usize = 4096;
/// The program in the kernel hears so often that this one lives: five times as often as it has to.
pub(super) const BEAT: Span = Span::from_millis(100);

/// A router.
pub(super) struct Machine {
    pub(super) loaded: Loaded,
    pub(super) windows: Windows,
    pub(super) shared: Shared,
    /// None on a dry run.
    written: Option<Written>,
    ports: Vec<Port>,
    flows: BTreeMap<FlowId, Known>,
    sets: u64,
    /// What failed since the last beat.
    troubles: BTreeSet<String>,
}

struct Port {
    interface: String,
    device: u32,
    program: Box<dyn WindowProgram>,
    /// Bytes that wait, at the last look.
    held: u64,
    budget: u64,
}

/// A flow of which the law knows.
#[derive(Clone, Copy)]
struct Known {
    port: usize,
    last: Time,
    came: Offset,
    acked: Offset,
    /// The last look did not find it in the kernel.
    is_missed: bool,
    window: Option<u64>,
    /// What the window takes on the link, and what the least that can be stated takes; nothing once its FIN has passed.
    bytes: u64,
    least: u64,
}

impl Known {
    /// Offsets after what has come and after what is acknowledged.
    fn follow(&mut self, flow: &Flow) -> (u64, u64) {
        (self.came.follow(flow.came()), self.acked.follow(flow.acked()))
    }
}

impl Host for Machine {
    const ACTS: &'static [Act] = &[Act::Rewrite];

    // The role has programs, and nobody to wake.
    fn wake(&mut self, _role: usize, _at: Time) {}
}

pub(super) fn failed(why: NoProgram) -> Error {
    Error::Failed(format!("error: {why}"))
}

impl Machine {
    /// Puts the programs at the ports; windows stay as they are until the first [beat](Self::beat).
    pub(super) fn new(loaded: Loaded, state: Option<State<Entry>>) -> Result<Self, Error> {
        let deployment = &loaded.deployment;
        let missing = |why: &dyn std::fmt::Display| Error::Missing(format!("error: {why}"));
        let roles = [deployment.role()];
        Lacks::none(&roles, Self::ACTS).map_err(|lacks| missing(&lacks))?;
        let devices = devices(&loaded).map_err(|why| missing(&why))?;
        let [role] = roles;
        let mut ports = Vec::new();
        for ((_, program), (port, device)) in
            role.built.programs.into_iter().zip(deployment.ports.iter().zip(devices))
        {
            if let Program::Rewrite(program) = program {
                let budget = deployment.terms(port).whole();
                ports.push(Port { interface: port.interface.clone(), device, program, held: 0, budget });
            }
        }
        let mut windows = Windows::load().map_err(|why| lacking(&why))?;
        let mut written = super::journal::begin(state)?;
        let status = Status::begin(&loaded, written.is_none());
        for Port { interface, .. } in &ports {
            if let Some((_, journal)) = &mut written {
                journal.write(&Entry::Follow { interface: interface.clone() })?;
            }
            windows.follow(interface).map_err(|why| lacking(&why))?;
        }
        let shared = Arc::new(status.into());
        Ok(Self {
            loaded,
            windows,
            shared,
            written,
            ports,
            flows: BTreeMap::new(),
            sets: 0,
            troubles: BTreeSet::new(),
        })
    }

    /// Where status and journal are; none on a dry run.
    pub(super) fn folder(&self) -> Option<&std::path::Path> {
        self.written.as_ref().map(|(state, _)| state.folder())
    }

    /// There are flows to look at.
    pub(super) fn has_flows(&self) -> bool {
        !self.flows.is_empty()
    }

    /// Hears what the program reported; whether it was anything.
    pub(super) fn hear(&mut self) -> Result<bool, Error> {
        let mut heard = false;
        for _ in 0..EVENTS {
            let Some((kind, flow)) = self.windows.event() else { break };
            heard = true;
            let Some(port) = self.port_of(&flow) else { continue };
            debug!(flow = %flow.id(), ?kind, ends = ?flow.ends(), "flow");
            let is_new = !self.flows.contains_key(&flow.id());
            let (came, acked) = match kind {
                Kind::Begins | Kind::Established => self.know(&flow, port).follow(&flow),
                _ => self.flows.get_mut(&flow.id()).map_or((0, 0), |known| known.follow(&flow)),
            };
            let Port { program, held, .. } = &mut self.ports[port];
            let (at, held, data) = (now(), *held, flow.segment(came));
            match kind {
                Kind::Begins => {
                    program.on_data(at, &Segment { syn: true, offset: 0, ..data }, held);
                }
                Kind::Established => {
                    if is_new {
                        program.on_data(at, &Segment { syn: true, offset: 0, ..data }, held);
                    }
                    let verdict = program.on_ack(at, &Segment { syn: true, ..flow.segment(acked) }, held);
                    self.apply(&flow, port, verdict);
                }
                Kind::Finished => drop(program.on_data(at, &Segment { fin: true, ..data }, held)),
                Kind::Reset | Kind::Replaced => {
                    program.on_data(at, &Segment { rst: true, ..data }, held);
                    self.forget(&flow);
                }
            }
        }
        Ok(heard)
    }

    fn port_of(&self, flow: &Flow) -> Option<usize> {
        self.ports.iter().position(|port| port.device == flow.device())
    }

    fn know(&mut self, flow: &Flow, port: usize) -> &mut Known {
        let (came, acked) = (Offset::new(flow.came()), Offset::new(flow.acked()));
        let known = Known {
            port,
            last: flow.last(),
            came,
            acked,
            is_missed: false,
            window: None,
            bytes: 0,
            least: 0,
        };
        self.flows.entry(flow.id()).or_insert(known)
    }

    fn forget(&mut self, flow: &Flow) {
        self.windows.forget(flow);
        self.flows.remove(&flow.id());
    }

    fn apply(&mut self, flow: &Flow, port: usize, verdict: AckVerdict) {
        let AckVerdict::Window(window) = verdict else {
            if verdict == AckVerdict::Pass {
                self.forget(flow);
            }
            return;
        };
        let Some(known) = self.flows.get_mut(&flow.id()) else { return };
        let Segment { mss, frame, scale, .. } = flow.segment(0);
        let goes_on = u64::from(!flow.has_ended());
        known.bytes = goes_on * (window / mss).max(1) * frame;
        known.least = goes_on * scale.div_ceil(mss) * frame;
        if known.window.replace(window) != Some(window) {
            if self.written.is_some()
                && let Err(why) = self.windows.set(flow, window)
            {
                known.window = None;
                self.troubles.insert(format!("interface {}: a window: {why}", self.ports[port].interface));
                return;
            }
            self.sets += 1;
            debug!(flow = %flow.id(), port = self.ports[port].interface, window, "window");
        }
    }

    /// The law and the kernel forget a flow whose end was not reported.
    fn end_of(&mut self, flow: &Flow) {
        self.tell_end(flow.id());
        self.forget(flow);
    }

    fn tell_end(&mut self, flow: FlowId) {
        if let Some(Known { port, .. }) = self.flows.remove(&flow) {
            let Port { program, held, .. } = &mut self.ports[port];
            let (syn, fin, window, mss, frame, scale) = (false, false, 0, 1, 1, 1);
            let rst = Segment { flow, syn, fin, rst: true, offset: 0, window, mss, frame, scale, paths: 1 };
            program.on_data(now(), &rst, *held);
        }
    }

    /// Looks at all flows: the law hears how far they are, and the kernel what their windows are.
    pub(super) fn look(&mut self) -> Result<(), Error> {
        let devices: Vec<u32> = self.ports.iter().map(|port| port.device).collect();
        match queues(&devices) {
            Ok(queues) => {
                for (port, queue) in self.ports.iter_mut().zip(queues) {
                    port.held = queue.backlog;
                }
            }
            // What waited at the last look counts on.
            Err(why) => drop(self.troubles.insert(why)),
        }
        let (mut found, mut beat) = (BTreeSet::new(), now());
        let ageing = self.loaded.deployment.params.span("ageing");
        for flow in self.windows.flows().map_err(failed)? {
            let (at, last) = (now(), flow.last());
            if self.written.is_some() && at.since(beat) >= BEAT {
                self.windows.beat(FIRST).map_err(failed)?;
                beat = at;
            }
            let Some(port) = self.port_of(&flow) else {
                // Its device was made anew.
                self.end_of(&flow);
                continue;
            };
            found.insert(flow.id());
            let silent = at.since(last);
            let Port { program, held, .. } = &mut self.ports[port];
            let held = *held;
            if !self.flows.contains_key(&flow.id()) {
                // What was reported of it was lost, or is on its way.
                if flow.has_ended() {
                    if silent > ageing {
                        self.forget(&flow);
                    }
                    continue;
                }
                program.on_data(last, &Segment { syn: true, ..flow.segment(0) }, held);
                self.know(&flow, port);
            }
            if flow.has_ended() && silent > ageing || !flow.is_established() && silent > HANDSHAKE {
                self.end_of(&flow);
                continue;
            }
            if !flow.is_established() {
                continue;
            }
            let program = &mut self.ports[port].program;
            let Some(known) = self.flows.get_mut(&flow.id()) else { continue };
            let (came, acked) = known.follow(&flow);
            if std::mem::replace(&mut known.last, last) < last && !flow.has_ended() {
                program.on_data(last, &flow.segment(came), held);
            }
            let verdict = program.on_ack(at, &flow.segment(acked), held);
            self.apply(&flow, port, verdict);
        }
        self.reconcile(&found);
        for Port { program, held, .. } in &mut self.ports {
            if program.timer().is_some_and(|at| at <= now()) {
                program.on_timer(now(), *held);
            }
        }
        Ok(())
    }

    /// Flows that two looks did not find in the kernel have ended. A table that changes may hide one from a look.
    fn reconcile(&mut self, found: &BTreeSet<FlowId>) {
        let mut gone = Vec::new();
        for (flow, known) in &mut self.flows {
            let is_missed = !found.contains(flow);
            if std::mem::replace(&mut known.is_missed, is_missed) && is_missed {
                gone.push(*flow);
            }
        }
        gone.into_iter().for_each(|flow| self.tell_end(flow));
    }

    /// Tells the program in the kernel that somebody is here, and everybody how it goes.
    pub(super) fn beat(&mut self) -> Result<(), Error> {
        let mut told: Vec<PortStatus> = self.ports.iter().map(PortStatus::from).collect();
        for Known { port, bytes, .. } in self.flows.values() {
            told[*port].flows += 1;
            told[*port].windows += bytes;
        }
        if self.written.is_some() {
            self.windows.beat(FIRST).map_err(failed)?;
        }
        let faults = self.faults();
        let packets = self.windows.counts().map_err(failed)?.by_kind();
        let mut status = lock(&self.shared);
        status.ports = told;
        status.written = self.sets;
        status.packets = packets.map(|(kind, count)| (kind.to_owned(), count)).to_vec();
        change_faults(&mut status, faults);
        Ok(())
    }

    fn faults(&mut self) -> Vec<String> {
        let mut faults: Vec<String> = std::mem::take(&mut self.troubles).into_iter().collect();
        let buffer = self.loaded.deployment.params.bytes("buffer").get();
        for port in &mut self.ports {
            let interface = &port.interface;
            faults.extend(stay_at(&mut self.windows, interface, &mut port.device));
            if let Ok([queue]) = queues(&[port.device]).as_deref() {
                faults.extend(queue.lacks(interface, buffer));
            }
        }
        for (at, Port { interface, budget, .. }) in self.ports.iter().enumerate() {
            let least: u64 =
                self.flows.values().filter(|known| known.port == at).map(|known| known.least).sum();
            if least > *budget {
                faults.push(format!(
                    "interface {interface}: a segment for each of its flows is {least} B, more than windows may be: {budget} B"
                ));
            }
        }
        faults
    }

    /// The programs leave, and the journal is forgotten.
    pub(super) fn end(self) -> Result<(), Error> {
        drop(self.windows);
        self.written.map_or(Ok(()), |(state, _)| state.forget())
    }
}

/// The programs are at the port, or come back to it: what is wrong.
pub(super) fn stay_at(windows: &mut Windows, interface: &str, device: &mut u32) -> Option<String> {
    match nix::net::if_::if_nametoindex(interface) {
        Ok(now) if now == *device && windows.is_at(now) != Ok(false) => None,
        Ok(now) => {
            // It was made anew, and has lost its programs, or somebody removed one.
            windows.leave(interface);
            match windows.follow(interface) {
                Ok(()) => *device = now,
                Err(why) => return Some(format!("interface {interface}: {why}")),
            }
            None
        }
        Err(_) => Some(format!("interface {interface}: no such device")),
    }
}

/// Others are told what is wrong, and the log what is so now and was not, or is over.
pub(super) fn change_faults(status: &mut Status, faults: Vec<String>) {
    for fault in faults.iter().filter(|fault| !status.faults.contains(fault)) {
        warn!(%fault, "fault");
    }
    for fault in status.faults.iter().filter(|fault| !faults.contains(fault)) {
        info!(%fault, "over");
    }
    status.faults = faults;
}

impl From<&Port> for PortStatus {
    fn from(port: &Port) -> Self {
        Self { interface: port.interface.clone(), budget: port.budget, backlog: port.held, ..Self::default() }
    }
}

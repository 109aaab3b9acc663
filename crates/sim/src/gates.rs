//! Window programs of schemes at ports: they see data on its way out and acknowledgements that come back over the link.

use std::collections::BTreeMap;

use bandmaster_core::id::{FlowId, PortId};
use bandmaster_core::port::window::{AckVerdict, Segment, WindowProgram};
use bandmaster_core::time::Time;

use crate::events::Event;
use crate::net::Net;
use crate::packet::{Label, Packet, flag};
use crate::tcp::Profile;

/// The programs of a run.
#[derive(Default)]
pub(crate) struct Gates {
    gates: Vec<Gate>,
    /// By port: its gate, or `NONE`. Empty when there are no programs.
    of_port: Vec<u32>,
}

struct Gate {
    program: Box<dyn WindowProgram>,
    port: u32,
    /// Acknowledgements that wait, by flow.
    held: BTreeMap<u32, Label>,
    /// By flow that was given a window: the next hop of its last acknowledgement, and that acknowledgement without its reports of
    /// losses and marks.
    last: BTreeMap<u32, (u32, Packet)>,
    wake_at: Option<Time>,
}

const NONE: u32 = u32::MAX;

impl Gates {
    /// Puts a program at one of `ports` ports.
    pub(crate) fn add(&mut self, port: PortId, program: Box<dyn WindowProgram>, ports: usize) {
        self.of_port.resize(ports, NONE);
        self.of_port[port.index()] = self.gates.len() as u32;
        self.gates.push(Gate {
            program,
            port: port.0,
            held: BTreeMap::new(),
            last: BTreeMap::new(),
            wake_at: None,
        });
    }

    /// Some program asks hosts to return the window field.
    pub(crate) fn is_echoed(&self) -> bool {
        self.gates.iter().any(|gate| gate.program.is_echoed())
    }

    /// Their senders' timeouts follow QCBF's Algorithm 1.
    pub(crate) fn divides_at_timeout(&self) -> bool {
        self.gates.iter().any(|gate| gate.program.divides_at_timeout())
    }

    /// Packets that wait.
    pub(crate) fn held(&self) -> u64 {
        self.gates.iter().map(|gate| gate.held.len() as u64).sum()
    }

    /// Whether a program handles packets that arrive over `port` and go on over port `next`. Most hops have no program.
    #[inline]
    pub(crate) fn concern(&self, port: u32, next: u32) -> bool {
        !self.gates.is_empty()
            && (self.of_port[next as usize] != NONE || self.of_port[(port ^ 1) as usize] != NONE)
    }

    /// A TCP packet that concerns a program has arrived over `port`. False when the program holds it.
    pub(crate) fn pass<'p>(
        &mut self,
        port: u32,
        label: Label,
        profile_of: impl Fn(u32) -> &'p Profile,
        net: &mut Net,
    ) -> bool {
        let profile = profile_of(label.flow);
        let next = net.routes[label.hop as usize];
        let packet = *net.slab.at(label.key);
        let (of_next, of_twin) = (self.of_port[next as usize], self.of_port[(port ^ 1) as usize]);
        if !packet.reverse && of_next != NONE {
            let gate = &mut self.gates[of_next as usize];
            let held = gate.waiting(net) + u64::from(packet.len);
            let stamp = gate.program.on_data(net.now, &segment(&packet, profile), held);
            if let Some(stamp) = stamp {
                let window = &mut net.slab.at(label.key).window;
                *window = u64::from(*window).min(stamp) as u32;
            }
            if packet.flags & flag::RST != 0 {
                gate.last.remove(&packet.flow);
                if let Some(late) = gate.held.remove(&packet.flow) {
                    net.slab.remove(late.key);
                }
            }
            gate.settle(of_next, &profile_of, net);
            return true;
        }
        if !packet.reverse || of_twin == NONE {
            return true;
        }
        let gate = &mut self.gates[of_twin as usize];
        let held = gate.waiting(net);
        let verdict = gate.program.on_ack(net.now, &segment(&packet, profile), held);
        match verdict {
            AckVerdict::Pass => drop(gate.last.remove(&packet.flow)),
            AckVerdict::Window(window) => {
                let flags = packet.flags & !flag::ECE;
                let copy = Packet { flags, len: profile.ack_len(0), sack_count: 0, ..packet };
                gate.last.insert(packet.flow, (label.hop, copy));
                set_window(window, label, profile, net);
            }
            AckVerdict::Hold => gate.hold(label, net),
        }
        gate.settle(of_twin, &profile_of, net);
        verdict != AckVerdict::Hold
    }

    /// The timer of gate `number`. `profile_of` gives a flow's profile.
    pub(crate) fn on_timer<'p>(
        &mut self,
        number: u32,
        profile_of: impl Fn(u32) -> &'p Profile,
        net: &mut Net,
    ) {
        let gate = &mut self.gates[number as usize];
        if gate.wake_at != Some(net.now) {
            return;
        }
        gate.wake_at = None;
        let held = gate.waiting(net);
        gate.program.on_timer(net.now, held);
        gate.settle(number, &profile_of, net);
    }
}

impl Gate {
    /// Bytes that wait at its port.
    fn waiting(&self, net: &mut Net) -> u64 {
        net.ports[self.port as usize].waiting_bytes(net.now)
    }

    /// Keeps an acknowledgement in place of an earlier one of its flow, which tells nothing more.
    fn hold(&mut self, label: Label, net: &mut Net) {
        if let Some(earlier) = self.held.insert(label.flow, label) {
            net.slab.remove(earlier.key);
        }
    }

    /// Lets go what may go, and plans the timer.
    fn settle<'p>(&mut self, number: u32, profile_of: &impl Fn(u32) -> &'p Profile, net: &mut Net) {
        self.release(profile_of, net);
        self.plan(number, net);
    }

    fn release<'p>(&mut self, profile_of: &impl Fn(u32) -> &'p Profile, net: &mut Net) {
        while let Some((FlowId(flow), window)) = self.program.release() {
            let copy = |net: &mut Net| {
                let (hop, packet) = *self.last.get(&flow)?;
                Some(Label { hop, ..net.slab.insert(packet) })
            };
            if let Some(label) = self.held.remove(&flow).or_else(|| copy(net)) {
                set_window(window, label, profile_of(flow), net);
                net.forward(label);
            }
        }
    }

    fn plan(&mut self, number: u32, net: &mut Net) {
        let wanted = self.program.timer();
        if wanted != self.wake_at {
            self.wake_at = wanted;
            if let Some(at) = wanted {
                net.schedule(at, Event::Gate(number));
            }
        }
    }
}

/// States a window in an acknowledgement.
fn set_window(window: u64, label: Label, profile: &Profile, net: &mut Net) {
    let packet = net.slab.at(label.key);
    let is_syn = packet.flags & flag::SYN != 0;
    let window =
        if is_syn { window } else { Segment::stated(window, profile.mss, 1 << profile.window_shift) };
    packet.window = u64::from(packet.window).min(window) as u32;
}

fn segment(packet: &Packet, profile: &Profile) -> Segment {
    let width = match packet.payload {
        0 => 0,
        _ if profile.is_multipath => profile.mss,
        payload => u64::from(payload),
    };
    let fin = packet.flags & flag::FIN != 0;
    let offset = if packet.reverse { packet.ack } else { packet.seq + width + u64::from(fin) };
    Segment {
        flow: FlowId(packet.flow),
        syn: packet.flags & flag::SYN != 0,
        fin,
        rst: packet.flags & flag::RST != 0,
        offset,
        window: u64::from(packet.window),
        mss: profile.mss,
        frame: profile.mss + u64::from(profile.overhead),
        scale: 1 << profile.window_shift,
        paths: profile.paths,
    }
}

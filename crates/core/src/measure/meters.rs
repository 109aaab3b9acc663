//! All meters of a run, and what inelastic traffic leaves to the flows that they measure.

use super::gauges::GaugeMeter;
use super::{Flows, Meter, PortSample};
use crate::id::PortId;
use crate::scenario::{FlowGroup, Scenario, Transport};
use crate::scheme::Role;
use crate::time::Time;
use crate::units::Rate;
use crate::workload::FlowPlan;

/// Measures a run.
pub struct Meters {
    /// Of flows, and of the measured port's queue.
    pub flows: Meter,
    /// Of what roles show.
    pub gauges: GaugeMeter,
    /// Port whose queue is reported.
    pub measured_port: Option<PortId>,
    ports: Vec<Load>,
    frame_overhead: f64,
}

/// Traffic on a port, in bit/s.
#[derive(Clone, Copy)]
struct Load {
    rate: f64,
    /// Of inelastic traffic that is on.
    inelastic: f64,
    /// The part of it that is not measured.
    background: f64,
}

impl Meters {
    /// Meters of the measured ones of `plans` and of `roles`; no inelastic traffic is on.
    pub fn new(
        scenario: &Scenario,
        plans: &[FlowPlan],
        roles: &[Role],
        rates: &[Rate],
        measured_port: Option<PortId>,
    ) -> Self {
        let load = |rate: &Rate| Load { rate: rate.bits_per_sec() as f64, inelastic: 0.0, background: 0.0 };
        let mut meters = Self {
            flows: Meter::new(scenario, plans),
            gauges: GaugeMeter::new(scenario, roles.iter().map(|role| role.place.node)),
            measured_port,
            ports: rates.iter().map(load).collect(),
            frame_overhead: scenario.topology.frame_overhead.get() as f64,
        };
        meters.note_free(Time::ZERO, |_| true);
        meters
    }

    /// A flow of `group` over the ports `route` is on, or off, from `at` on.
    pub fn turn(&mut self, at: Time, group: &FlowGroup, route: &[u32], on: bool) {
        let Transport::Udp { rate, packet, .. } = &group.transport else { return };
        let bits = rate.bits_per_sec().max(1) as f64;
        let wire = bits * (1.0 + self.frame_overhead / packet.get() as f64);
        let change = if on { wire } else { -wire };
        for &port in route {
            let load = &mut self.ports[port as usize];
            load.inelastic += change;
            if !group.measured {
                load.background += change;
            }
        }
        if !group.measured {
            self.note_free(at, |port| route.contains(&port.0));
        }
    }

    /// Tells what background traffic leaves of the measured and the tracked port, where they are among those that change.
    fn note_free(&mut self, at: Time, changes: impl Fn(PortId) -> bool) {
        let free = |port: PortId| {
            let load = &self.ports[port.index()];
            (load.rate - load.background).max(0.0)
        };
        if let Some(port) = self.measured_port.filter(|port| changes(*port)) {
            self.flows.set_room(at, free(port), self.ports[port.index()].background);
        }
        let tracked = self.gauges.tracking().map(|tracking| tracking.port);
        if let Some(port) = tracked.filter(|port| changes(*port)) {
            self.gauges.set_free(at, free(port));
        }
    }

    /// Ends a sampling interval; `port` is of the measured port.
    pub fn sample(&mut self, scenario: &Scenario, now: Time, port: PortSample, flows: &Flows<'_>) {
        let queue_name = self.measured_port.map(|port| scenario.topology.port_name(port));
        let capacities: Vec<f64> =
            self.ports.iter().map(|load| (load.rate - load.inelastic).max(0.0)).collect();
        self.flows.take(now, port, queue_name.as_deref(), &capacities, flows);
        self.gauges.sample();
    }
}

//! Links and nodes that go down and up, and flows that take other ways.

use bandmaster_core::control::{FlowEnd, FlowStart, Observation};
use bandmaster_core::id::PortId;
use bandmaster_core::memory;
use bandmaster_core::time::Time;

use super::Simulation;
use crate::events::Event;
use crate::net::TAIL;
use crate::routes::route_ports;
use crate::workload::{FlowPlan, flow_key};
use crate::{RunError, RunOptions};

impl Simulation<'_> {
    /// Plans the outages of the trial. Routes know from the start what is down then.
    pub(crate) fn begin_outages(&mut self, options: &RunOptions<'_>) -> Result<(), RunError> {
        let mut has_changes = false;
        for number in 0..self.outages.turns().len() {
            let at = self.outages.turns()[number].at;
            if at > Time::ZERO {
                self.net.events.push(at, Event::Outage(number as u32));
                continue;
            }
            let links = self.turn_part(number);
            self.outages.learn_at_once(&links);
            has_changes |= !links.is_empty();
        }
        if has_changes { self.take_new_ways(options) } else { Ok(()) }
    }

    /// A part of the network goes down or comes up.
    #[cold]
    pub(super) fn outage(&mut self, number: usize) {
        let links = self.turn_part(number);
        if !links.is_empty()
            && let Some(at) = self.outages.learn_later(self.net.now, &links)
        {
            self.net.events.push(at, Event::Reroute);
        }
    }

    /// Turn `number` happens: the links that it changes.
    fn turn_part(&mut self, number: usize) -> Vec<u32> {
        let links = self.outages.turn(number, &self.scenario.topology);
        for &link in &links {
            self.net.turn_link(link, self.outages.is_down(link));
            if self.outages.is_down(link) {
                self.fail_crossing(link);
            }
        }
        links
    }

    /// Routes learn what has changed.
    #[cold]
    pub(super) fn reroute(&mut self, options: &RunOptions<'_>) -> Result<(), RunError> {
        if self.outages.learn(self.net.now) { self.take_new_ways(options) } else { Ok(()) }
    }

    /// Computes the ways of all flows, messages and probes again.
    fn take_new_ways(&mut self, options: &RunOptions<'_>) -> Result<(), RunError> {
        self.outages.reroutes += 1;
        self.routes.avoid(self.outages.avoided());
        let before = (self.flows.data_routes.as_slice(), self.flows.ack_routes.as_slice());
        let table = &mut self.net.routes;
        let tcp_flows = before.1.len();
        let (data, acks) =
            self.routes.insert_flows(&self.flows.plans, tcp_flows, Some(before), table, options)?;
        let routes = &mut self.routes;
        self.control.probes.reroute(|from, to, place| routes.move_probes(from, to, place, table));
        let ports = self.net.routes.len() as u64;
        if ports > memory::MOST_ROUTE_PORTS {
            return Err(RunError::Failed(format!(
                "routes have {ports} ports at {}, after {} changes of the network; at most {}: fewer failures or \
                 flows need less",
                self.net.now,
                self.outages.reroutes,
                memory::MOST_ROUTE_PORTS
            )));
        }
        for (flow, data) in data.into_iter().enumerate() {
            self.move_flow_to(flow, data, acks.get(flow).copied());
        }
        self.move_messages();
        self.meters.flows.forget_fair();
        Ok(())
    }

    /// Lets the data of a flow take the way at place `data` in the table of routes, and its acknowledgements that at `acks`.
    fn move_flow_to(&mut self, flow: usize, data: u32, acks: Option<u32>) {
        let old = std::mem::replace(&mut self.flows.data_routes[flow], data);
        let Some(acks) = acks else {
            if old != data {
                self.lead(data);
                self.move_source(flow - self.connections.flows(), old, data);
            }
            return;
        };
        let old_acks = std::mem::replace(&mut self.flows.ack_routes[flow], acks);
        if (old, old_acks) == (data, acks) {
            return;
        }
        self.lead(data);
        self.lead(acks);
        let number = flow as u32;
        // What the connections of an exchange take is found by their messages.
        if self.exchanges.contains(number) {
            return;
        }
        if let Some(connection) = self.connections.get_mut(flow) {
            connection.sender.set_route(data);
            connection.receiver.set_route(acks);
        }
        if old != data && !self.control.runner.is_empty() {
            self.tell_of_move(number);
        }
    }

    /// The UDP source of this number takes the way at place `new` instead of `old`.
    fn move_source(&mut self, number: usize, old: u32, new: u32) {
        let source = &mut self.udp.sources[number];
        source.route = new;
        if source.on {
            for (place, on) in [(old, false), (new, true)] {
                match &mut self.part {
                    Some(part) => part.turns.push((self.net.now, number as u32, on, place)),
                    None => self.meter_turn(self.net.now, number, on, place),
                }
            }
        }
    }

    /// Messages of exchanges take other ways.
    fn move_messages(&mut self) {
        for (flow, key) in self.exchanges.open() {
            let i = flow as usize;
            let FlowPlan { src, dst, .. } = self.flows.plans[i];
            let there = self.routes.way(src, dst, key, &mut self.net.routes);
            let back = self.routes.way(dst, src, key, &mut self.net.routes);
            if let (Some(there), Some(back)) = (there, back)
                && let Some(connection) = self.connections.get_mut(i)
            {
                self.net.starts[i] = [there.first, back.first];
                connection.sender.set_route(there.tail | TAIL);
                connection.receiver.set_route(back.tail | TAIL);
            }
        }
    }

    /// A way begins with a port whose host then may have a slower link to wait for.
    fn lead(&mut self, place: u32) {
        let ports = route_ports(&self.net.routes, place);
        let slowest = ports.iter().map(|&port| self.net.ports[port as usize].nanos_per_byte()).max();
        if let (Some(&first), Some(slowest)) = (ports.first(), slowest) {
            self.net.ports[first as usize].leads_over(slowest);
        }
    }

    /// Tells the roles at both ends of an open flow where its data go from now on.
    fn tell_of_move(&mut self, flow: u32) {
        let FlowPlan { src, dst, .. } = self.flows.plans[flow as usize];
        let Some(connection) = self.connections.get(flow as usize) else { return };
        let ends = [
            (dst, FlowEnd::Receiver, connection.receiver.is_open()),
            (src, FlowEnd::Sender, connection.sender.is_open()),
        ];
        let ports = route_ports(&self.net.routes, self.flows.data_routes[flow as usize]);
        let route: Vec<PortId> = ports.iter().map(|port| PortId(*port)).collect();
        for (node, end, _) in ends.into_iter().filter(|(.., is_open)| *is_open) {
            let moved = FlowStart { stats: self.stats_of(flow, end), key: flow_key(flow), route: &route };
            self.observe(node, &Observation::FlowMoved(moved));
        }
    }
}

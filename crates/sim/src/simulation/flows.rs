//! What is known of every flow, apart from its connection.

use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::{FlowGroup, Scenario, Transport};
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::Bytes;

use super::{Connection, transfer_size};
use crate::tcp::Profile;
use crate::tcp::multipath::Share;
use crate::tcp::receiver::Receiver;
use crate::tcp::sender::Sender;
use crate::workload::{FlowPlan, Jitter, Toggles, UdpSource};

/// The flows of a trial: TCP flows first, then UDP.
pub(crate) struct FlowTable {
    pub(crate) plans: Vec<FlowPlan>,
    /// By flow: first hop of its data. By TCP flow: first hop of its acknowledgements.
    pub(crate) data_routes: Vec<u32>,
    pub(crate) ack_routes: Vec<u32>,
    /// By TCP flow: its profile.
    pub(crate) profile_of: Vec<u32>,
    pub(crate) profiles: Vec<Profile>,
    /// Profiles with a scheme's changes: the profile they are of, the changes, their own number.
    pub(crate) tuned: Vec<(u32, Tuning, u32)>,
    /// By TCP flow: its part in a multipath connection. Empty when there is none.
    pub(crate) shares: Vec<Option<Share>>,
    pub(crate) toggles: Toggles,
    /// Bytes of IP packets that each TCP flow's receiver got; empty when nobody asks for them.
    pub(crate) received_ip_bytes: Vec<u64>,
    /// Bytes that each TCP flow sends; empty when no group draws them.
    pub(crate) sizes: Vec<u64>,
    /// Seed and trial.
    draws: (u64, u32),
}

impl FlowTable {
    /// Nothing has started. `profile_of` is by flow group.
    pub(crate) fn new(
        scenario: &Scenario,
        trial: u32,
        plans: Vec<FlowPlan>,
        (data_routes, ack_routes): (Vec<u32>, Vec<u32>),
        (profiles, profile_of): (Vec<Profile>, &[u32]),
    ) -> Self {
        let tcp = &plans[..ack_routes.len()];
        let needed = |by: &dyn Fn(&FlowGroup) -> bool| {
            if scenario.flows.iter().any(by) { tcp.len() } else { 0 }
        };
        let size = |plan: &FlowPlan| plan.size(scenario, trial).map_or(0, Bytes::get);
        Self {
            data_routes,
            profile_of: tcp.iter().map(|plan| profile_of[plan.group_index()]).collect(),
            profiles,
            tuned: Vec::new(),
            shares: vec![None; needed(&|group| group.multipath.is_some())],
            toggles: Toggles::new(&plans, scenario, trial),
            received_ip_bytes: vec![0; needed(&|group| group.need.is_some() || scenario.measure.arrivals)],
            sizes: tcp[..needed(&FlowGroup::has_sizes)].iter().map(size).collect(),
            draws: (scenario.run.seed, trial),
            ack_routes,
            plans,
        }
    }

    /// What the congestion control of a flow draws at random.
    pub(crate) fn control_stream(&self, flow: usize, groups: &[FlowGroup]) -> Stream {
        let (seed, trial) = self.draws;
        Stream::new(seed, trial, &format!("flow/{}/congestion-control", self.plans[flow].name(groups)))
    }

    #[inline]
    pub(crate) fn profile(&self, flow: usize) -> &Profile {
        &self.profiles[self.profile_of[flow] as usize]
    }

    /// The profile of a flow that may be UDP.
    pub(crate) fn tcp_profile(&self, flow: usize) -> Option<&Profile> {
        self.profile_of.get(flow).map(|&profile| &self.profiles[profile as usize])
    }

    /// A new connection of a TCP flow.
    pub(super) fn connect(&self, flow: usize, groups: &[FlowGroup]) -> Connection {
        let (group, profile, number) = (self.plans[flow].group(groups), self.profile(flow), flow as u32);
        let mut receiver = Receiver::new(number, self.ack_routes[flow], profile);
        let mut sender = if let Some(share) = self.share(flow) {
            receiver.set_share(share);
            Sender::subflow(number, self.data_routes[flow], share, &profile.settings)
        } else {
            let drawn = self.sizes.get(flow).copied().filter(|_| group.has_sizes());
            let size = drawn.or_else(|| transfer_size(group));
            Sender::new(number, self.data_routes[flow], size, &profile.settings)
        };
        sender.set_stream(|| self.control_stream(flow, groups));
        Connection { sender, receiver }
    }

    /// The part of a flow in a multipath connection.
    #[inline]
    pub(crate) fn share(&self, flow: usize) -> Option<Share> {
        self.shares.get(flow).copied().flatten()
    }
}

/// The profiles of TCP's flow groups, and by flow group the number of its own.
pub(crate) fn profiles(scenario: &Scenario) -> (Vec<Profile>, Vec<u32>) {
    let overhead = scenario.topology.frame_overhead.get() as u32;
    let mut profiles = Vec::new();
    let number = |group: &FlowGroup| {
        if let Transport::Tcp { settings, .. } = &group.transport {
            let has_schemes = !scenario.schemes.is_empty();
            let profile = Profile::new(settings.clone(), group.dscp, has_schemes, overhead);
            profiles.push(match &group.multipath {
                Some(multipath) => profile.with_multipath(multipath),
                None => profile,
            });
        }
        profiles.len().saturating_sub(1) as u32
    };
    let profile_of = scenario.flows.iter().map(number).collect();
    (profiles, profile_of)
}

/// Constant-rate sources, and by source how many datagrams have come to its receiver.
pub(crate) struct Udp {
    pub(crate) sources: Vec<UdpSource>,
    pub(crate) received: Vec<u64>,
}

impl Udp {
    /// Nobody sends.
    pub(crate) fn new(scenario: &Scenario, trial: u32, plans: &[FlowPlan], data_routes: &[u32]) -> Self {
        let source = |((flow, plan), route): ((u32, &FlowPlan), &u32)| {
            UdpSource::new(flow, *route, plan.group(&scenario.flows), Jitter::new(plan, scenario, trial))
        };
        let sources: Vec<_> = (0..).zip(plans).zip(data_routes).filter_map(source).collect();
        Self { received: vec![0; sources.len()], sources }
    }
}

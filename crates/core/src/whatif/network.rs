//! The links of a controller's file as a network that can be simulated.

use core::fmt::Write as _;
use std::collections::{BTreeMap, VecDeque};

use crate::controller::{Deployment, Host, Link};
use crate::time::Span;

/// Nodes and links.
#[derive(Clone, Debug)]
pub struct Network {
    /// As a scenario calls them.
    names: Vec<String>,
    by_name: BTreeMap<String, usize>,
    is_host: Vec<bool>,
    /// In the order of the hosts-file: those whose TCP is set.
    agents: Vec<usize>,
    links: Vec<Link>,
    /// By node: links from it to each neighbour.
    hops: Vec<Vec<u16>>,
    longest_rtt: Span,
}

/// A scenario's names have no dots, which stand before the members of groups.
fn without_dots(name: &str) -> String {
    name.replace('.', "_")
}

impl Network {
    /// Of `deployment` with these `hosts`.
    ///
    /// # Errors
    /// Everything that is missing, a line each.
    pub fn new(deployment: &Deployment, hosts: &[Host]) -> Result<Self, String> {
        let mut wrong = Vec::new();
        let links = deployment.links.clone();
        if links.is_empty() {
            wrong.push("[[links]] are missing: without them nobody knows what the hosts share".to_owned());
        }
        for link in links.iter().filter(|link| link.delay.is_none() || link.queue.is_none()) {
            let missing = if link.delay.is_none() { "delay" } else { "queue" };
            wrong.push(format!(
                "the link between `{}` and `{}` has no `{missing}`",
                link.ends[0], link.ends[1]
            ));
        }
        let mut degree: BTreeMap<&str, usize> = BTreeMap::new();
        links.iter().flat_map(|link| &link.ends).for_each(|end| *degree.entry(end).or_default() += 1);
        let agents =
            || hosts.iter().filter(|host| !deployment.is_router(host)).map(|host| host.name.as_str());
        wrong.extend(
            agents()
                .filter(|name| !links.is_empty() && !degree.contains_key(name))
                .map(|name| format!("host `{name}` has no link")),
        );
        let is_end = |name: &str| {
            let has_addresses = deployment.networks.iter().any(|(_, at)| at == name);
            agents().any(|agent| agent == name) || (has_addresses && degree.get(name) == Some(&1))
        };
        for (prefix, at) in &deployment.networks {
            if degree.contains_key(at.as_str()) && !is_end(at) {
                wrong.push(format!(
                    "{prefix} is at `{at}`, which forwards: write a node with one link for what is behind it"
                ));
            }
        }
        let (mut names, mut by_name) = (Vec::new(), BTreeMap::new());
        let mut taken = BTreeMap::new();
        for name in agents().chain(degree.keys().copied()) {
            if by_name.contains_key(name) {
                continue;
            }
            let plain = without_dots(name);
            if let Some(other) = taken.insert(plain.clone(), name) {
                wrong.push(format!(
                    "`{other}` and `{name}` differ by dots alone, which a scenario cannot tell apart"
                ));
            }
            by_name.insert(name.to_owned(), names.len());
            names.push(plain);
        }
        if !wrong.is_empty() {
            return Err(wrong.join("\n"));
        }
        let mut is_host = vec![false; names.len()];
        by_name.iter().for_each(|(name, node)| is_host[*node] = is_end(name));
        let agents = agents().map(|name| by_name[name]).collect();
        let mut network =
            Self { names, by_name, is_host, agents, links, hops: Vec::new(), longest_rtt: Span::ZERO };
        network.measure();
        Ok(network)
    }

    /// Links between any two hosts, and the longest way there and back.
    fn measure(&mut self) {
        let mut next = vec![Vec::new(); self.names.len()];
        for link in &self.links {
            let [a, b] = [0, 1].map(|end| self.by_name[&link.ends[end]]);
            let delay = link.delay.unwrap_or_default();
            next[a].push((b, delay));
            next[b].push((a, delay));
        }
        for from in 0..self.names.len() {
            let mut far = vec![(u16::MAX, Span::ZERO); self.names.len()];
            far[from].0 = 0;
            let mut queue = VecDeque::from([from]);
            while let Some(at) = queue.pop_front() {
                // Hosts do not forward.
                if at != from && self.is_host[at] {
                    continue;
                }
                for (to, delay) in &next[at] {
                    if far[*to].0 == u16::MAX {
                        far[*to] = (far[at].0 + 1, far[at].1 + *delay);
                        queue.push_back(*to);
                    }
                }
            }
            let longest = far.iter().map(|(_, delay)| *delay).max().unwrap_or_default();
            self.longest_rtt = self.longest_rtt.max(longest * 2);
            self.hops.push(far.into_iter().map(|(hops, _)| hops).collect());
        }
    }

    /// The host that the file calls so.
    pub(super) fn host(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied().filter(|node| self.is_host[*node])
    }

    pub(super) fn name(&self, node: usize) -> &str {
        &self.names[node]
    }

    pub(super) fn hops(&self, src: usize, dst: usize) -> u16 {
        self.hops[src][dst]
    }

    pub(super) const fn longest_rtt(&self) -> Span {
        self.longest_rtt
    }

    fn list(&self, nodes: impl Iterator<Item = usize>) -> String {
        nodes.map(|node| format!("\"{}\"", self.names[node])).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn hosts(&self) -> String {
        self.list((0..self.names.len()).filter(|node| self.is_host[*node]))
    }

    pub(super) const fn count_agents(&self) -> usize {
        self.agents.len()
    }

    pub(super) fn agents(&self) -> String {
        self.list(self.agents.iter().copied())
    }

    /// The network's tables of a scenario file.
    pub(super) fn tables(&self) -> String {
        let routers = self.list((0..self.names.len()).filter(|node| !self.is_host[*node]));
        let mut text = format!("routers = [{routers}]\nhosts = [{}]\n", self.hosts());
        for Link { ends, rate, delay, queue } in &self.links {
            let [a, b] = [0, 1].map(|end| without_dots(&ends[end]));
            let (delay, queue) = (delay.unwrap_or_default(), queue.as_deref().unwrap_or_default());
            let _ = writeln!(
                text,
                "[[network.links]]\nends = [\"{a}\", \"{b}\"]\nrate = \"{rate}\"\ndelay = \"{delay}\"\nqueue = \"{queue}\""
            );
        }
        text
    }
}

//! Parts of a network that can be simulated at the same time.
//!
//! A host and the routers near it are one part. A router without hosts whose links lead to many parts, as the core of a fat tree,
//! is of none: each of its ports is of the part that the port leads to, so that a packet changes parts once. What a
//! part does reaches another after the delay of a link at the earliest; the least such delay is the lookahead.

use std::collections::BTreeSet;

use bandmaster_core::time::Span;
use bandmaster_core::topology::{NodeKind, Topology};

/// Which part has what.
pub(crate) struct Partitioning {
    pub(crate) parts: usize,
    /// By node: the part that has the ends of its flows.
    pub(crate) of_node: Vec<u8>,
    /// By port: the part that has its queue.
    pub(crate) of_port: Vec<u8>,
    /// By port: the node at its other end.
    pub(crate) ends: Vec<u32>,
    /// By port: packets that leave it may be for another part.
    pub(crate) crosses: Vec<bool>,
    /// The least delay of those ports; none when there are none.
    pub(crate) lookahead: Option<Span>,
}

/// Links that may separate parts, and routers that may be of several.
pub(crate) struct Separable<'a> {
    /// By link: its delay, where that is the same for every packet.
    pub(crate) delays: &'a [Option<Span>],
    /// By node: its ports have something in common.
    pub(crate) bound: &'a [bool],
}

/// Nodes that stay together, with the links to others.
struct Units {
    /// By node: its unit.
    of_node: Vec<u32>,
    /// By unit: hosts in it, and the units at the other ends of its links.
    hosts: Vec<u32>,
    links: Vec<Vec<u32>>,
    nodes: Vec<u32>,
}

const NO_PART: u8 = u8::MAX;

impl Partitioning {
    /// At most `parts` parts of `topology`, with about as many hosts each.
    pub(crate) fn new(topology: &Topology, parts: usize, separable: &Separable<'_>) -> Self {
        let units = Units::new(topology, separable);
        let mut of_unit = units.by_level(parts).unwrap_or_else(|| units.grow(parts));
        units.place_rest(&mut of_unit);
        let of_node: Vec<u8> = units.of_node.iter().map(|&unit| of_unit[unit as usize]).collect();
        let parts = of_node.iter().max().map_or(1, |&last| usize::from(last) + 1);
        let is_split = units.split(topology, separable.bound, &of_unit, parts);
        let ends: Vec<(u32, u32)> =
            topology.links.iter().flat_map(|link| [(link.a.0, link.b.0), (link.b.0, link.a.0)]).collect();
        let of = |node: u32| of_node[node as usize];
        let of_port: Vec<u8> =
            ends.iter().map(|&(from, to)| if is_split[from as usize] { of(to) } else { of(from) }).collect();
        let crosses: Vec<bool> = (ends.iter().zip(&of_port))
            .map(|(&(_, to), &owner)| parts > 1 && (is_split[to as usize] || of(to) != owner))
            .collect();
        let delays = (0..).zip(&crosses).filter(|(_, crosses)| **crosses);
        let lookahead = delays.filter_map(|(port, _): (usize, _)| separable.delays[port / 2]).min();
        let ends = ends.into_iter().map(|(_, to)| to).collect();
        Self { parts, of_node, of_port, ends, crosses, lookahead }
    }
}

impl Units {
    /// A link whose delay is none or varies joins its ends, and the only link of a host does.
    fn new(topology: &Topology, separable: &Separable<'_>) -> Self {
        let count = topology.nodes.len();
        let mut degrees = vec![0; count];
        for link in &topology.links {
            degrees[link.a.index()] += 1;
            degrees[link.b.index()] += 1;
        }
        let is_host = |node: usize| topology.nodes[node].kind == NodeKind::Host;
        let is_leaf = |node: usize| is_host(node) && degrees[node] == 1;
        let mut above: Vec<u32> = (0..count as u32).collect();
        for (link, delay) in topology.links.iter().zip(separable.delays) {
            let (a, b) = (link.a.index(), link.b.index());
            if delay.is_none_or(Span::is_zero) || is_leaf(a) || is_leaf(b) {
                let (a, b) = (root(&mut above, a), root(&mut above, b));
                above[a.max(b)] = a.min(b) as u32;
            }
        }
        let mut number = vec![u32::MAX; count];
        let mut units =
            Self { of_node: vec![0; count], hosts: Vec::new(), links: Vec::new(), nodes: Vec::new() };
        for node in 0..count {
            let root = root(&mut above, node);
            if number[root] == u32::MAX {
                number[root] = units.hosts.len() as u32;
                units.hosts.push(0);
                units.links.push(Vec::new());
                units.nodes.push(0);
            }
            let unit = number[root];
            units.of_node[node] = unit;
            units.hosts[unit as usize] += u32::from(is_host(node));
            units.nodes[unit as usize] += 1;
        }
        for link in &topology.links {
            let (a, b) = (units.of_node[link.a.index()], units.of_node[link.b.index()]);
            if a != b {
                units.links[a as usize].push(b);
                units.links[b as usize].push(a);
            }
        }
        units
    }

    /// Racks or pods: what is left when the routers that are farthest from hosts are taken away, level by level, until there are
    /// as many pieces as `parts`; several pieces make a part if there are more. None where routers have no levels.
    fn by_level(&self, parts: usize) -> Option<Vec<u8>> {
        let levels = self.levels();
        let top = levels.iter().copied().max()?;
        let mut best: Option<(usize, Vec<u32>)> = None;
        for level in (1..=top).rev() {
            let (count, pieces) = self.pieces(|unit| levels[unit] < level);
            if best.as_ref().is_none_or(|(most, _)| count > *most) {
                best = Some((count, pieces));
            }
            if count >= parts {
                break;
            }
        }
        let (count, pieces) = best.filter(|(count, _)| *count > 1)?;
        let mut hosts = vec![0u64; count];
        for (unit, &piece) in pieces.iter().enumerate().filter(|(_, piece)| **piece != u32::MAX) {
            hosts[piece as usize] += u64::from(self.hosts[unit]);
        }
        let (all, parts) = (hosts.iter().sum::<u64>().max(1), parts.min(count));
        let mut before = 0;
        let part_of: Vec<u8> = (hosts.iter())
            .map(|own| {
                let middle = before + own / 2;
                before += own;
                (middle * parts as u64 / all).min(parts as u64 - 1) as u8
            })
            .collect();
        Some(pieces.iter().map(|&piece| part_of.get(piece as usize).copied().unwrap_or(NO_PART)).collect())
    }

    /// By unit: links between it and the nearest host; 0: it has one.
    fn levels(&self) -> Vec<u32> {
        let mut levels: Vec<u32> =
            self.hosts.iter().map(|&hosts| if hosts > 0 { 0 } else { u32::MAX }).collect();
        let mut queue: std::collections::VecDeque<usize> =
            (0..levels.len()).filter(|&unit| levels[unit] == 0).collect();
        while let Some(unit) = queue.pop_front() {
            for &other in &self.links[unit] {
                if levels[other as usize] == u32::MAX {
                    levels[other as usize] = levels[unit] + 1;
                    queue.push_back(other as usize);
                }
            }
        }
        // Nothing leads there.
        levels.iter_mut().filter(|level| **level == u32::MAX).for_each(|level| *level = 0);
        levels
    }

    /// The pieces that the units that `stay` form, with a host at least: how many, and by unit its own.
    fn pieces(&self, stay: impl Fn(usize) -> bool) -> (usize, Vec<u32>) {
        let mut pieces = vec![u32::MAX; self.hosts.len()];
        let mut count = 0;
        for seed in 0..pieces.len() {
            if self.hosts[seed] == 0 || !stay(seed) || pieces[seed] != u32::MAX {
                continue;
            }
            let mut open = vec![seed];
            pieces[seed] = count;
            while let Some(unit) = open.pop() {
                for &other in &self.links[unit] {
                    if pieces[other as usize] == u32::MAX && stay(other as usize) {
                        pieces[other as usize] = count;
                        open.push(other as usize);
                    }
                }
            }
            count += 1;
        }
        (count as usize, pieces)
    }

    /// Grows parts one after the other: next comes the unit with the most links into the part and the fewest out of it.
    fn grow(&self, parts: usize) -> Vec<u8> {
        let mut of_unit = vec![NO_PART; self.hosts.len()];
        let mut left: u32 = self.hosts.iter().sum();
        let mut seeds = (0..self.hosts.len()).filter(|&unit| self.hosts[unit] > 0);
        for part in 0..parts {
            let (mut has, wants) = (0, left.div_ceil((parts - part) as u32));
            // By gain, then by number; the gain of each unit that is in it.
            let mut frontier: BTreeSet<(i64, std::cmp::Reverse<u32>)> = BTreeSet::new();
            let mut gains: std::collections::BTreeMap<u32, i64> = std::collections::BTreeMap::new();
            while has < wants {
                let next = match frontier.pop_last() {
                    Some((_, std::cmp::Reverse(unit))) => unit as usize,
                    None => match seeds.by_ref().find(|&unit| of_unit[unit] == NO_PART) {
                        Some(unit) => unit,
                        None => break,
                    },
                };
                of_unit[next] = part as u8;
                has += self.hosts[next];
                for &other in &self.links[next] {
                    if of_unit[other as usize] != NO_PART {
                        continue;
                    }
                    let least = -(self.links[other as usize].len() as i64);
                    let gain = gains.entry(other).or_insert(least);
                    frontier.remove(&(*gain, std::cmp::Reverse(other)));
                    *gain += 2;
                    frontier.insert((*gain, std::cmp::Reverse(other)));
                }
            }
            left -= has;
        }
        of_unit
    }

    /// What no part has taken goes where most of its links go.
    fn place_rest(&self, of_unit: &mut [u8]) {
        loop {
            let mut changed = false;
            for unit in 0..of_unit.len() {
                if of_unit[unit] == NO_PART
                    && let Some((_, part)) = self.most(unit, of_unit)
                {
                    of_unit[unit] = part;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        of_unit.iter_mut().filter(|part| **part == NO_PART).for_each(|part| *part = 0);
    }

    /// The part that most links of a unit lead to, and how many.
    fn most(&self, unit: usize, of_unit: &[u8]) -> Option<(u32, u8)> {
        let mut counts = std::collections::BTreeMap::new();
        for &other in &self.links[unit] {
            let part = of_unit[other as usize];
            if part != NO_PART {
                *counts.entry(part).or_insert(0) += 1;
            }
        }
        counts.into_iter().map(|(part, count)| (count, std::cmp::Reverse(part))).max().map(|(n, p)| (n, p.0))
    }

    /// By node: whether each of its ports is of the part that the port leads to.
    fn split(&self, topology: &Topology, bound: &[bool], of_unit: &[u8], parts: usize) -> Vec<bool> {
        let mut is_split = vec![false; self.of_node.len()];
        if parts < 2 {
            return is_split;
        }
        let mut candidates: Vec<(u64, usize)> = Vec::new();
        let mut neighbours: Vec<Vec<u32>> = vec![Vec::new(); self.of_node.len()];
        for link in &topology.links {
            neighbours[link.a.index()].push(link.b.0);
            neighbours[link.b.index()].push(link.a.0);
        }
        for (node, near) in neighbours.iter().enumerate() {
            let unit = self.of_node[node] as usize;
            let has_hosts = near.iter().any(|&n| topology.nodes[n as usize].kind == NodeKind::Host);
            let is_router = topology.nodes[node].kind == NodeKind::Router;
            if !is_router || has_hosts || bound[node] || self.nodes[unit] > 1 {
                continue;
            }
            if let Some((most, _)) = self.most(unit, of_unit)
                && 2 * (most as usize) <= near.len()
            {
                candidates.push((u64::from(most) * 1_000_000 / near.len() as u64, node));
            }
        }
        candidates.sort_unstable();
        for (_, node) in candidates {
            is_split[node] = neighbours[node].iter().all(|&near| !is_split[near as usize]);
        }
        is_split
    }
}

fn root(above: &mut [u32], mut node: usize) -> usize {
    while above[node] as usize != node {
        above[node] = above[above[node] as usize];
        node = above[node] as usize;
    }
    node
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::{Options, parse};

    use super::*;

    fn divided(network: &str, parts: usize) -> (Topology, Partitioning) {
        let text = format!(
            "version = 1\nname = \"p\"\n[run]\nduration = \"1s\"\n[network]\n{network}\n[[flows]]\nname = \"a\"\nfrom = \
             \"hosts\"\nto = \"hosts\"\npairing = \"permutation\"\n"
        );
        let study = parse("x.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let topology = study.cases[0].scenario.topology.clone();
        let delays = vec![Some(Span::from_micros(2)); topology.links.len()];
        let bound = vec![false; topology.nodes.len()];
        let parts = Partitioning::new(&topology, parts, &Separable { delays: &delays, bound: &bound });
        (topology, parts)
    }

    fn hosts_of(topology: &Topology, of_node: &[u8], parts: usize) -> Vec<usize> {
        let mut hosts = vec![0; parts];
        for (node, part) in topology.nodes.iter().zip(of_node) {
            hosts[usize::from(*part)] += usize::from(node.kind == NodeKind::Host);
        }
        hosts
    }

    #[test]
    fn pods_stay_together_and_core_routers_are_of_all() {
        for builder in ["fat-tree", "dual-fat-tree"] {
            let network =
                format!("builder = \"{builder}\"\nk = 8\nlink = {{ rate = \"1gbit\", delay = \"2us\" }}");
            for parts in [2, 4, 8] {
                let (topology, divided) = divided(&network, parts);
                let all = topology.nodes.iter().filter(|node| node.kind == NodeKind::Host).count();
                assert_eq!(hosts_of(&topology, &divided.of_node, parts), vec![all / parts; parts]);
                // Every pod has 16 links up, and a packet changes parts on its way down only.
                let crossing = divided.crosses.iter().filter(|crosses| **crosses).count();
                assert_eq!(crossing, 8 * 16, "{builder}");
                for (port, _) in divided.crosses.iter().enumerate().filter(|(_, crosses)| **crosses) {
                    let link = &topology.links[port / 2];
                    let names = [link.a, link.b].map(|node| topology.nodes[node.index()].name.as_str());
                    assert!(names.iter().any(|name| name.starts_with("core")), "{names:?}");
                }
            }
        }
    }

    #[test]
    fn racks_stay_together_where_there_are_more_parts_than_pods() {
        let network = "builder = \"fat-tree\"\nk = 4\nlink = { rate = \"1gbit\", delay = \"2us\" }";
        let (topology, divided) = divided(network, 8);
        assert_eq!(divided.parts, 8);
        assert_eq!(hosts_of(&topology, &divided.of_node, 8), [2; 8]);
    }

    #[test]
    fn a_star_is_one_part() {
        let network = "builder = \"star\"\nsize = 5\nlink = { rate = \"1gbit\", delay = \"2us\" }";
        let (_, divided) = divided(network, 8);
        assert_eq!((divided.parts, divided.lookahead), (1, None));
    }

    #[test]
    fn the_spine_of_a_network_is_of_all_leaves() {
        let link = "{ rate = \"1gbit\", delay = \"2us\" }";
        let network = format!(
            "builder = \"leaf-spine\"\nleaves = 6\nspines = 1\nsize = 3\naccess = {link}\nfabric = {link}"
        );
        let (topology, divided) = divided(&network, 3);
        assert_eq!(hosts_of(&topology, &divided.of_node, 3), [6; 3]);
        let crossing = divided.crosses.iter().filter(|crosses| **crosses).count();
        assert_eq!(crossing, 6, "the way up of each leaf");
        assert_eq!(divided.lookahead, Some(Span::from_micros(2)));
    }
}

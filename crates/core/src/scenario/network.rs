//! `[network]`: a builder's graph, and what the file adds to it.

use std::collections::BTreeMap;

use super::choices::Builder;
use super::keys;
use super::sources::Reader;
use crate::capacity::{Capacity, Step, Steps, StepsMisfit};
use crate::file::{Content, Item, Layer, Place, Section, is_name, joined, list, suggestion};
use crate::id::NodeId;
use crate::losses::GilbertElliott;
use crate::params::Written;
use crate::propagation::Variation;
use crate::rng::SpanDraw;
use crate::time::Span;
use crate::topology::builders::{self, Graph, LinkSettings};
use crate::topology::{NodeKind, Topology};
use crate::units::Rate;

/// The least rate of a link or source: below it a packet takes longer than any run.
pub(super) const LEAST_RATE: Rate = Rate::from_bits_per_sec(1_000);

/// The keys of the two directions.
const CAPACITIES: [&str; 2] = ["capacity", "capacity-back"];
const GEMODELS: [&str; 2] = ["gemodel", "gemodel-back"];

/// The longest delay of a link.
const LONGEST_DELAY: Span = Span::from_secs(3600);

/// Most hosts in the networks of all cases of a file: a million take more than a second to be read.
const MOST_HOSTS: u64 = 600_000;

/// Reads the network; `None` when something is wrong with it.
pub(super) fn read(reader: &mut Reader, file: &Section<'_>, clients: Option<i64>) -> Option<Topology> {
    file.item("network")?;
    let errors_before = reader.errors.len();
    let layer = reader.table(file, "network");
    let network = reader.section(&keys::NETWORK, &layer);
    let defaults = reader.table(&network, "link");
    if network.item("link").is_some() {
        let section = reader.section(&keys::LINK_DEFAULTS, &defaults);
        for key in ["queue", "host-queue"] {
            let _ = reader.queue(&section, key);
        }
        for key in CAPACITIES {
            let _ = capacity(reader, &section, key);
        }
        for key in GEMODELS {
            let _ = gemodel(reader, &section, key);
        }
    }
    let before_building = reader.errors.len();
    let graph = build(reader, &network, &defaults);
    let mut draft = Draft {
        is_map: network.choice("builder") == Some(Builder::GraphMl),
        is_whole: reader.errors.len() == before_building,
        graph: graph.unwrap_or_default(),
        names: BTreeMap::new(),
        tables: Vec::new(),
        made: 0,
        overridden: BTreeMap::new(),
        defaults: defaults.clone(),
    };
    draft.know_tables(&network);
    let built = draft.graph.nodes.iter().enumerate();
    draft.names = built.map(|(i, n)| (n.name.clone(), (NodeId(i as u32), network.place.clone()))).collect();
    draft.nodes(reader, &network, "routers", NodeKind::Router);
    draft.nodes(reader, &network, "hosts", NodeKind::Host);
    for layer in reader.tables(&network, "groups") {
        draft.group(reader, layer, clients);
    }
    draft.made = draft.graph.links.len();
    for layer in reader.tables(&network, "links") {
        draft.link(reader, layer);
    }
    for (i, group) in draft.graph.groups.iter().enumerate() {
        let taken = draft.names.contains_key(&group.name);
        if taken || draft.graph.groups[..i].iter().any(|g| g.name == group.name) {
            let path = format!("{}.groups.{}", network.path, group.name);
            let place = group_place(&network, &group.name).unwrap_or_else(|| network.place.clone());
            let what = if taken { "node" } else { "group" };
            reader.fail(&place, &path, format!("the name `{}` is already that of a {what}", group.name));
        }
    }
    if draft.graph.nodes.is_empty() && reader.errors.len() == errors_before {
        let message = "has no nodes";
        let hint = "name some in `hosts` and `routers`, or choose a `builder`";
        reader.fail_with(&network.place, &network.path, message, hint);
    }
    let overhead = network.bytes("frame-overhead")?;
    if overhead.get() > 1_000 {
        reader.fail_key(&network, "frame-overhead", format!("\"{overhead}\" is more than 1000B"));
    }
    let (host_delay, tolerance) = (network.float("host-delay")?, network.float("rate-tolerance")?);
    (reader.errors.len() == errors_before).then(|| draft.graph.into_topology(overhead, host_delay, tolerance))
}

fn group_place(network: &Section<'_>, name: &str) -> Option<Place> {
    let path = [name.to_owned(), "name".to_owned()];
    network.item("groups")?.find(&path).map(|i| i.place.clone())
}

/// Runs the builder that the file names.
fn build(reader: &mut Reader, network: &Section<'_>, defaults: &Layer<'_>) -> Option<Graph> {
    let links = |reader: &mut Reader, key: &str| -> Option<LinkSettings> {
        let layer = reader.table(network, key);
        let def = match key {
            "access" => &keys::ACCESS,
            "bottleneck" => &keys::BOTTLENECK,
            _ => &keys::FABRIC,
        };
        let section = reader.section_over(def, &[layer, defaults.clone()]);
        link_settings(reader, &section)
    };
    let number = |key: &str| network.integer(key).and_then(|n| u32::try_from(n).ok());
    let builder = network.choice("builder")?;
    match builder {
        Builder::Custom => None,
        Builder::Dumbbell => {
            let (access, bottleneck) = (links(reader, "access"), links(reader, "bottleneck"));
            let (left, right) = (number("left")?, number("right")?);
            make_room(reader, network, "left", u64::from(left) + u64::from(right))?;
            Some(builders::dumbbell(left, right, &access?, &bottleneck?))
        }
        Builder::Star => {
            let access = links(reader, "access");
            Some(builders::star(limited(reader, network, "size", 1)?, &access?))
        }
        Builder::ParkingLot => {
            let (access, bottleneck) = (links(reader, "access"), links(reader, "bottleneck"));
            let size = limited(reader, network, "size", number("hops")?.saturating_add(1))?;
            Some(builders::parking_lot(number("hops")?, size, &access?, &bottleneck?))
        }
        Builder::LeafSpine => {
            let (access, fabric) = (links(reader, "access"), links(reader, "fabric"));
            let size = limited(reader, network, "size", number("leaves")?)?;
            Some(builders::leaf_spine(number("leaves")?, number("spines")?, size, &access?, &fabric?))
        }
        Builder::Pod => {
            let (access, bottleneck) = (links(reader, "access"), links(reader, "bottleneck"));
            let size = limited(reader, network, "size", number("tors")?)?;
            Some(builders::pod(size, number("tors")?, &access?, &bottleneck?))
        }
        Builder::FatTree | Builder::DualFatTree => {
            let (access, fabric) = (links(reader, "access"), links(reader, "fabric"));
            let k = number("k")?;
            if !k.is_multiple_of(2) {
                let message = format!("{k} is odd; a fat tree needs an even number of ports");
                reader.fail_key(network, "k", message);
                return None;
            }
            make_room(reader, network, "k", u64::from(k).pow(3) / 4)?;
            let build =
                if builder == Builder::FatTree { builders::fat_tree } else { builders::dual_fat_tree };
            Some(build(k, &access?, &fabric?))
        }
        Builder::GraphMl => {
            let (access, fabric) = (links(reader, "access"), links(reader, "fabric"));
            let map = reader.map(network, "map")?;
            let size = limited(reader, network, "size", u32::try_from(map.sites.len()).ok()?)?;
            let scale = network.float("rate-scale")?;
            let slowest = map.lines.iter().filter_map(|line| line.rate).min();
            let least = LEAST_RATE.bits_per_sec() as f64;
            if let Some(rate) = slowest.filter(|rate| rate.bits_per_sec() as f64 * scale < least) {
                let message = format!("{scale} of {rate} of the map is below {LEAST_RATE}, the least rate");
                reader.fail_key(network, "rate-scale", message);
                return None;
            }
            Some(builders::map(&map, size, scale, &access?, &fabric?))
        }
    }
}

/// The number of hosts at each of `places`, when there is room for them.
fn limited(reader: &mut Reader, network: &Section<'_>, key: &str, places: u32) -> Option<u32> {
    let size = u32::try_from(network.integer(key)?).ok()?;
    make_room(reader, network, key, u64::from(size) * u64::from(places))?;
    Some(size)
}

/// Counts hosts that are to be made; none when the file has too many in all its cases.
fn make_room(reader: &mut Reader, section: &Section<'_>, key: &str, hosts: u64) -> Option<()> {
    let before = reader.sources.hosts.get();
    if before + hosts > MOST_HOSTS {
        let message = match before {
            0 => format!("makes {hosts} hosts; at most {MOST_HOSTS}"),
            _ => format!(
                "makes {hosts} hosts, and {before} are there; at most {MOST_HOSTS} in all cases of a file"
            ),
        };
        reader.fail_key(section, key, message);
        return None;
    }
    reader.sources.hosts.set(before + hosts);
    Some(())
}

/// The network as far as it is read.
struct Draft<'a> {
    graph: Graph,
    /// False when nodes are missing because something is wrong with their table, which is noted.
    is_whole: bool,
    /// Its links have rates and delays of a map.
    is_map: bool,
    names: BTreeMap<String, (NodeId, Place)>,
    /// Tables with the settings of links that the builder and groups made: the table's first link, whether the first
    /// end of its links is a host, and the table.
    tables: Vec<(usize, bool, Layer<'a>)>,
    /// Number of links that the builder and groups made.
    made: usize,
    /// Those of them that the file overrides, and where.
    overridden: BTreeMap<usize, Place>,
    /// `[network.link]`.
    defaults: Layer<'a>,
}

impl<'a> Draft<'a> {
    /// Notes which tables the builder took: its shared links begin at a router, those of hosts at the host.
    fn know_tables(&mut self, network: &Section<'a>) {
        for (key, is_of_hosts) in [("access", true), ("bottleneck", false), ("fabric", false)] {
            if let Some(item) = network.has(key).then(|| network.item(key)).flatten() {
                self.tables.push((0, is_of_hosts, Layer::new(network.key_path(key), item)));
            }
        }
    }

    /// The table of a link that the builder or a group made.
    fn table_of(&self, link: usize) -> Option<&Layer<'a>> {
        let first_end = self.graph.links.get(link)?.a;
        let is_of_host = self.graph.nodes[first_end.index()].kind == NodeKind::Host;
        let is_its = |(first, is_of_hosts, _): &&(usize, bool, Layer<'a>)| {
            *first <= link && *is_of_hosts == is_of_host
        };
        self.tables.iter().rev().find(is_its).map(|(_, _, layer)| layer)
    }

    fn take_name(&mut self, reader: &mut Reader, name: &str, node: NodeId, place: &Place, path: &str) {
        if let Some((_, first)) = self.names.get(name) {
            let there = if first.line > 0 { format!(" (line {})", first.line) } else { String::new() };
            reader.fail(place, path, format!("the name `{name}` is taken{there}"));
        } else {
            self.names.insert(name.to_owned(), (node, place.clone()));
        }
    }

    fn nodes(&mut self, reader: &mut Reader, network: &Section<'_>, key: &str, kind: NodeKind) {
        let names = network.list(key).unwrap_or_default();
        let path = network.key_path(key).to_owned();
        for (i, name) in names.iter().enumerate() {
            let item = network.item(key);
            let place = item.and_then(|item| item.find(&[i.to_string()])).or(item);
            let place = place.map_or(&network.place, |i| &i.place);
            if !is_name(name) {
                let message = format!("\"{name}\" is not a name of letters, digits, - and _");
                reader.fail(place, &path, message);
                continue;
            }
            let node = match kind {
                NodeKind::Host => self.graph.host(name),
                NodeKind::Router => self.graph.router(name),
            };
            self.take_name(reader, name, node, place, &path);
        }
    }

    fn group(&mut self, reader: &mut Reader, layer: Layer<'a>, clients: Option<i64>) {
        let section = reader.section_over(&keys::GROUP, &[layer.clone(), self.defaults.clone()]);
        let settings = link_settings(reader, &section);
        let name = reader.name(&section, "name");
        let count = member_count(reader, &section, clients);
        let router = section.text("attach").and_then(|attach| {
            let node = self.names.get(&attach).map(|(node, _)| *node);
            match node.map(|n| self.graph.nodes[n.index()].kind) {
                Some(NodeKind::Router) => node,
                Some(NodeKind::Host) => {
                    let message = format!("`{attach}` is a host, and hosts do not forward");
                    reader.fail_key(&section, "attach", message);
                    None
                }
                None if !self.is_whole => None,
                None => {
                    let routers = self.graph.nodes.iter().filter(|n| n.kind == NodeKind::Router);
                    let routers: Vec<&str> = routers.map(|n| n.name.as_str()).collect();
                    let hint = suggestion(&attach, &routers);
                    reader.fail_key_with(&section, "attach", format!("unknown router `{attach}`"), hint);
                    None
                }
            }
        });
        let (Some(name), Some(count), Some(router), Some(settings)) = (name, count, router, settings) else {
            self.is_whole = false;
            return;
        };
        let key = if section.item("count").is_some() { "count" } else { "share" };
        if make_room(reader, &section, key, u64::from(count)).is_none() {
            self.is_whole = false;
            return;
        }
        self.tables.push((self.graph.links.len(), true, layer));
        let members = self.graph.group(&name, count, router, &settings);
        for member in members {
            let member_name = self.graph.nodes[member.index()].name.clone();
            self.names.entry(member_name).or_insert_with(|| (member, section.place("name").clone()));
        }
    }

    fn link(&mut self, reader: &mut Reader, layer: Layer<'a>) {
        let target = self.link_to_override(&layer);
        let over = target.and_then(|link| self.table_of(link)).cloned();
        let layers: Vec<Layer<'a>> =
            [Some(layer), over, Some(self.defaults.clone())].into_iter().flatten().collect();
        let section = reader.section_over(&keys::LINK, &layers);
        let overrides = section.bool("override") == Some(true);
        // Without its link an override may lack what that has.
        let is_complete = !overrides || target.is_some();
        let mut settings = if is_complete { link_settings(reader, &section) } else { None };
        if let (Some(settings), Some(target)) = (&mut settings, target.filter(|_| self.is_map)) {
            let is_written = |key| layers[0].table.is_some_and(|table| table.get(key).is_some());
            let made = &self.graph.links[target];
            settings.rate = if is_written("rate") { settings.rate } else { made.rate };
            settings.delay = if is_written("delay") { settings.delay } else { made.delay };
        }
        let Some(names) = section.list("ends") else { return };
        let [a, b] = names.as_slice() else {
            let message = format!("a link has two ends, as in [\"r1\", \"r2\"], not {}", names.len());
            reader.fail_key(&section, "ends", message);
            return;
        };
        if a == b {
            reader.fail_key(&section, "ends", format!("links `{a}` to itself"));
            return;
        }
        let ends = [a, b].map(|name| {
            let node = self.names.get(name).map(|(node, _)| *node);
            if node.is_none() && self.is_whole {
                let message = format!("unknown node `{name}`");
                reader.fail_key_with(&section, "ends", message, self.nodes_like(name));
            }
            node
        });
        let [Some(a), Some(b)] = ends else { return };
        let known = self.link_between(a, b);
        let target = if overrides {
            match self.check_override(reader, &section, (a, b), known) {
                Some(target) => Some(target),
                None => return,
            }
        } else {
            None
        };
        if let Some(known) = known
            && target.is_none()
            && section.bool("parallel") == Some(false)
        {
            let message = format!("`{}` and `{}` have a link already", names[0], names[1]);
            let change = if known < self.made {
                "`override = true` to change it"
            } else {
                "change the settings of that link"
            };
            let hint = format!("write `parallel = true` to add another, or {change}");
            reader.fail_key_with(&section, "ends", message, hint);
        }
        if let Some(settings) = settings {
            self.graph.link(a, b, &settings);
            if let Some(link) = self.graph.links.last_mut() {
                link.drop_packets = section.ordinals("drop-packets");
                link.drop_packets.sort_unstable();
                link.drop_packets.dedup();
            }
            if let Some(target) = target {
                self.graph.links.swap_remove(target);
            }
        }
    }

    /// The first link between two nodes.
    fn link_between(&self, a: NodeId, b: NodeId) -> Option<usize> {
        self.graph.links.iter().position(|l| (l.a, l.b) == (a, b) || (l.a, l.b) == (b, a))
    }

    /// The link that a table of `links` overrides, if it says so and names one.
    fn link_to_override(&self, layer: &Layer<'_>) -> Option<usize> {
        let table = layer.table?;
        if !matches!(table.get("override")?.content, Content::Scalar(Written::Bool(true))) {
            return None;
        }
        let Content::List(ends) = &table.get("ends")?.content else { return None };
        let node = |item: &Item| self.names.get(item.text()?).map(|(node, _)| *node);
        let [a, b] = ends.as_slice() else { return None };
        self.link_between(node(a)?, node(b)?).filter(|link| *link < self.made)
    }

    /// The link that `section` may override; none when it may not, which is noted.
    fn check_override(
        &mut self,
        reader: &mut Reader,
        section: &Section<'_>,
        (a, b): (NodeId, NodeId),
        known: Option<usize>,
    ) -> Option<usize> {
        let errors_before = reader.errors.len();
        let name = |node: NodeId| self.graph.nodes[node.index()].name.as_str();
        if section.bool("parallel") == Some(true) {
            reader.fail_key(section, "parallel", "conflicts with `override`; a link has one of them");
        }
        let Some(known) = known else {
            let has = |end: NodeId| {
                let links = self.graph.links.iter().filter(|l| l.a == end || l.b == end);
                let others: Vec<&str> = links.map(|l| name(if l.a == end { l.b } else { l.a })).collect();
                format!("`{}` has links to {}", name(end), list(&others))
            };
            let message = format!("`{}` and `{}` have no link to override", name(a), name(b));
            reader.fail_key_with(section, "ends", message, format!("{}; {}", has(a), has(b)));
            return None;
        };
        let link = &self.graph.links[known];
        if known >= self.made {
            let message = format!("the link of `{}` and `{}` is one of this file's", name(a), name(b));
            reader.fail_key_with(section, "ends", message, "change its settings where it stands");
        } else if (link.a, link.b) != (a, b) {
            let message = format!("the first end of this link is `{}`", name(link.a));
            let hint = format!("write ends = [\"{}\", \"{}\"]", name(link.a), name(link.b));
            reader.fail_key_with(section, "ends", message, hint);
        } else if let Some(first) = self.overridden.insert(known, section.place("ends").clone()) {
            let there = if first.line > 0 { format!(" (line {})", first.line) } else { String::new() };
            let message = format!("the link of `{}` and `{}` is overridden already{there}", name(a), name(b));
            reader.fail_key(section, "ends", message);
        }
        (reader.errors.len() == errors_before).then_some(known)
    }

    /// What to write instead of a node's name that is not there: of a member the numbers that its group has.
    fn nodes_like(&self, name: &str) -> String {
        let (group, number) = name.rsplit_once('.').unwrap_or((name, ""));
        if let Some(group) = self.graph.groups.iter().find(|known| known.name == group)
            && let [first, .., last] | [first @ last] = group.members.as_slice()
        {
            let [first, last] = [first, last].map(|node| &self.graph.nodes[node.index()].name);
            return format!("the hosts of `{}` are `{first}` to `{last}`", group.name);
        }
        let is_like = |known: &&str| match known.rsplit_once('.') {
            None => true,
            Some((_, other)) => other == number,
        };
        let all: Vec<&str> = self.graph.nodes.iter().map(|n| n.name.as_str()).filter(is_like).collect();
        suggestion(name, &all)
    }
}

fn member_count(reader: &mut Reader, section: &Section<'_>, clients: Option<i64>) -> Option<u32> {
    match (section.item("count"), section.item("share")) {
        (Some(_), Some(_)) => {
            reader.fail_key(section, "share", "conflicts with `count`; a group has one of them");
            None
        }
        (None, None) => {
            let path = section.path.clone();
            reader.fail_with(&section.place, &path, "has no number of hosts", "write `count` or `share`");
            None
        }
        (Some(_), None) => u32::try_from(section.integer("count")?).ok(),
        (None, Some(_)) => {
            let share = section.float("share")?;
            let Some(clients) = clients else {
                reader.fail_key(section, "share", "is a part of `clients`, which the file does not give");
                return None;
            };
            let members = share * clients as f64;
            let whole = libm::round(members);
            if (members - whole).abs() > 1e-6 || whole < 1.0 {
                let message = format!(
                    "{share} of {clients} clients is {members} hosts; it must be a whole number, 1 or more"
                );
                reader.fail_key(section, "share", message);
                return None;
            }
            Some(whole as u32)
        }
    }
}

/// The settings of a link, checked.
fn link_settings(reader: &mut Reader, section: &Section<'_>) -> Option<LinkSettings> {
    let queue = reader.queue(section, "queue");
    let queue_back = section.item("queue-back").map(|_| reader.queue(section, "queue-back"));
    let host_queue = reader.queue(section, "host-queue");
    if section.item("rate").is_none() {
        let message = "is missing";
        let hint = "write it here or in [network.link]";
        reader.fail_with(&section.place, &joined(&section.path, "rate"), message, hint);
    }
    let [rate, rate_back] =
        ["rate", "rate-back"].map(|key| section.item(key).map(|_| rate(reader, section, key)));
    let [capacity, capacity_back] = CAPACITIES.map(|key| capacity(reader, section, key));
    let [loss, loss_back] = ["loss", "loss-back"].map(|key| {
        let loss = section.float(key);
        if loss.is_some_and(|loss| loss >= 1.0) {
            reader.fail_key(section, key, "1 would lose every packet; write a number from 0 to below 1");
        }
        loss
    });
    let loss_every = section.integer("loss-every").and_then(|every| u64::try_from(every).ok());
    let [bursts, bursts_back] = GEMODELS.map(|key| gemodel(reader, section, key));
    let delay = section.draw("delay");
    let variation = variation(reader, section, delay);
    if delay.is_some_and(|delay| delay.upper_bound().is_some_and(|most| most > LONGEST_DELAY)) {
        reader.fail_key(section, "delay", "is longer than an hour");
    }
    if let Some(SpanDraw::Exponential { .. }) = delay {
        let message =
            "an exponential delay has no bound; write a time, uniform(a, b), normal(mean, sd) or cdf(...)";
        reader.fail_key(section, "delay", message);
    }
    Some(LinkSettings {
        rate: rate??,
        rate_back: match rate_back {
            None => None,
            Some(rate) => Some(rate?),
        },
        capacity: capacity.ok()?,
        capacity_back: capacity_back.ok()?,
        delay: delay?,
        queue: queue?,
        queue_back: match queue_back {
            None => None,
            Some(queue) => Some(queue?),
        },
        host_queue: host_queue?,
        loss: loss?,
        loss_back,
        bursts: bursts.ok()?,
        bursts_back: bursts_back.ok()?,
        loss_of: section.choice("loss-of")?,
        loss_every,
        variation: variation?,
    })
}

/// The losses in bursts at `key`, none when the key is absent.
///
/// # Errors
/// When something is wrong with them, which is noted.
fn gemodel(reader: &mut Reader<'_>, link: &Section<'_>, key: &str) -> Result<Option<GilbertElliott>, ()> {
    let Some(item) = link.item(key) else { return Ok(None) };
    let errors_before = reader.errors.len();
    if item.table().is_none() {
        let message = format!("{item} is not a table");
        reader.fail_with(&item.place, link.key_path(key), message, "write { p = 0.01, r = 0.25 }");
        return Err(());
    }
    let section = reader.section(&keys::GEMODEL, &Layer::new(link.key_path(key), item));
    let [p, r, bad_loss, good_loss] = ["p", "r", "1-h", "1-k"].map(|key| section.float(key));
    if r == Some(0.0) {
        reader.fail_key(&section, "r", "0 would never leave the bad state; write a number above 0, up to 1");
    }
    if good_loss.is_some_and(|loss| loss >= 1.0) {
        let message = "1 would lose every packet of the good state; write a number from 0 to below 1";
        reader.fail_key(&section, "1-k", message);
    }
    match (p, r, bad_loss, good_loss) {
        (Some(p), Some(r), Some(bad_loss), Some(good_loss)) if reader.errors.len() == errors_before => {
            Ok(Some(GilbertElliott { p, r, bad_loss, good_loss }))
        }
        _ => Err(()),
    }
}

/// How the delays of packets differ on a link with this delay.
fn variation(reader: &mut Reader<'_>, link: &Section<'_>, delay: Option<SpanDraw>) -> Option<Variation> {
    let errors_before = reader.errors.len();
    let jitter = link.draw("jitter");
    if let Some(jitter) = jitter {
        let most = jitter.upper_bound().unwrap_or(Span::from_secs_f64(jitter.mean()));
        if most > LONGEST_DELAY {
            reader.fail_key(link, "jitter", "is longer than an hour");
        }
    }
    let variation = Variation {
        jitter,
        jitter_reorders: link.bool("jitter-reorders")?,
        reorder: link.float("reorder")?,
        reorder_gap: u32::try_from(link.integer("reorder-gap")?).ok()?,
        reorder_delay: link.span("reorder-delay")?,
    };
    // A sweep may turn either off: only what is not written is missing.
    if variation.jitter_reorders && link.item("jitter").is_none() {
        reader.fail_key(link, "jitter-reorders", "also needs `jitter`");
    }
    for key in ["reorder-gap", "reorder-delay"] {
        if link.item(key).is_some() && link.item("reorder").is_none() {
            reader.fail_key(link, key, "also needs `reorder`");
        }
    }
    let most = delay.and_then(SpanDraw::upper_bound);
    if let Some(most) = most.filter(|most| *most <= variation.reorder_delay)
        && variation.reorder > 0.0
        && jitter.is_none()
    {
        let message = format!(
            "{} overtakes nothing: packets that overtake take {}, and the others {most}",
            variation.reorder, variation.reorder_delay
        );
        let hint = "write a longer `delay`, or a shorter `reorder-delay`";
        reader.fail_key_with(link, "reorder", message, hint);
    }
    (reader.errors.len() == errors_before).then_some(variation)
}

/// The capacity at `key`, none when the key is absent.
///
/// # Errors
/// When something is wrong with it, which is noted.
fn capacity(reader: &mut Reader<'_>, link: &Section<'_>, key: &str) -> Result<Option<Capacity>, ()> {
    let Some(item) = link.item(key) else { return Ok(None) };
    let errors_before = reader.errors.len();
    if item.table().is_none() {
        let message = format!("{item} is not a table");
        let hint = "write { steps = [{ at = \"15s\", rate = \"1mbit\" }] } or { trace = \"FILE\" }";
        reader.fail_with(&item.place, link.key_path(key), message, hint);
        return Err(());
    }
    let section = reader.section(&keys::CAPACITY, &Layer::new(link.key_path(key), item));
    let capacity = match (section.item("steps"), section.item("trace")) {
        (Some(_), None) => steps(reader, &section).map(Capacity::Steps),
        (None, Some(_)) => {
            if section.item("period").is_some() {
                let message = "goes with `steps`; a trace restarts after its last line";
                reader.fail_key(&section, "period", message);
            }
            reader.trace(&section, "trace").map(Capacity::Trace)
        }
        (Some(_), Some(_)) => {
            reader.fail_key(&section, "trace", "conflicts with `steps`; a capacity has one of them");
            None
        }
        (None, None) => {
            let message = "does not say how the capacity changes";
            reader.fail_with(&section.place, &section.path, message, "write `steps` or `trace`");
            None
        }
    };
    match capacity {
        Some(capacity) if section.sound && reader.errors.len() == errors_before => Ok(Some(capacity)),
        _ => Err(()),
    }
}

fn steps(reader: &mut Reader<'_>, capacity: &Section<'_>) -> Option<Steps> {
    let errors_before = reader.errors.len();
    let sections: Vec<Section<'_>> = reader
        .tables(capacity, "steps")
        .iter()
        .map(|layer| reader.section(&keys::CAPACITY_STEP, layer))
        .collect();
    let mut steps = Vec::new();
    for section in &sections {
        let (Some(at), Some(rate)) = (section.span("at"), section.rate("rate")) else { continue };
        if rate != Rate::ZERO && rate < LEAST_RATE {
            let message = format!("\"{rate}\" is below {LEAST_RATE}, the least rate, and not a pause, 0bit");
            reader.fail_key(section, "rate", message);
        }
        steps.push(Step { at, rate });
    }
    if reader.errors.len() > errors_before || !capacity.sound {
        return None;
    }
    match Steps::new(steps, capacity.span("period")) {
        Ok(steps) => Some(steps),
        Err(StepsMisfit { step, key, why }) => {
            match step {
                Some(step) => reader.fail_key(&sections[step], key, why),
                None => reader.fail_key(capacity, "steps", why),
            }
            None
        }
    }
}

/// A rate that something can be sent at.
pub(super) fn rate(reader: &mut Reader, section: &Section<'_>, key: &str) -> Option<Rate> {
    let rate = section.rate(key)?;
    if rate < LEAST_RATE {
        let shown = section.item(key).map_or_else(String::new, Item::to_string);
        reader.fail_key(section, key, format!("{shown} is below {LEAST_RATE}, the least rate"));
        return None;
    }
    Some(rate)
}

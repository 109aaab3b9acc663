//! Sets the TCP of new connections through route metrics, where the kernel takes no program.
//!
//! A route is replaced as a whole: the agent sends the kernel's own message back with other metrics. It journals the old route
//! first, and restores it only where its own change is still in place.

use std::collections::{BTreeMap, BTreeSet};

use netlink_bindings::rt_route::{Request, Rtmsg};
use netlink_bindings::traits::Pusher;
use netlink_socket2::{NetlinkSocket, ReplyError};
use serde::{Deserialize, Serialize};

use super::journal::Entry;
use crate::daemon::Error;
use crate::kernel::tcp::Settings;

/// A host with more routes that forward is a router, and its routes are left alone.
const MOST_ROUTES: usize = 1000;
/// `RT_TABLE_MAIN`, `RTN_UNICAST`.
const MAIN: u8 = 254;
const UNICAST: u8 = 1;
/// `RTM_F_CLONED`: what the kernel has learnt of one address (its path's MTU, a redirect), and no route.
pub(super) const CLONED: u32 = 0x200;
/// `RTNH_F_PERVASIVE` and `RTNH_F_ONLINK`: the other flags tell of the device.
const FLAGS: u32 = 6;
/// `RTA_DST`, `RTA_OIF`, `RTA_PRIORITY`, `RTA_METRICS`, `RTA_MULTIPATH`, `RTA_CACHEINFO`, `RTA_NH_ID`.
const DESTINATION: u16 = 1;
const DEVICE: u16 = 4;
const PRIORITY: u16 = 6;
const METRICS: u16 = 8;
const MULTIPATH: u16 = 9;
const CACHE: u16 = 12;
const NEXT_HOP: u16 = 30;
/// `RTAX_LOCK`, `RTAX_INITCWND`, `RTAX_RTO_MIN`, `RTAX_CC_ALGO`.
const LOCK: u16 = 1;
const INITIAL_WINDOW: u16 = 11;
const LEAST_TIMEOUT: u16 = 13;
const CONTROL: u16 = 16;
/// Why a route is not given back yet.
const BEHIND: &str = "another route to the same addresses, with the same priority, is before it";
/// Bits of an attribute's type that say how it is laid out.
const LAYOUT: u16 = 0xc000;

/// What a controller or an operator may ask for and routes cannot have.
pub(super) const LACKS: [&str; 7] = [
    "initial-rto: no metric of a route has it",
    "window-cap: a route's cwnd acts only after an earlier connection to the same address",
    "pacing: no metric of a route has it",
    "per-connection values: a route has one for all connections to its addresses (control-group, BAS)",
    "live connections: an initial window and a congestion control stay with those that began; a least timeout acts on live ones, and \
     ends with the routes'",
    "IPv6: its routes are left alone, and so are other tables than main, routes over several ways and nexthop objects",
    "record: connections that end are not counted",
];

/// Takes out what routes cannot have: a line for each.
pub(super) fn leave_out(settings: &mut Settings) -> Vec<String> {
    let Settings { control, initial_window, least_timeout, .. } = settings.clone();
    let had = std::mem::replace(
        settings,
        Settings { control, initial_window, least_timeout, ..Settings::default() },
    );
    let asked = [had.first_timeout.is_some(), had.window_cap.is_some(), had.pacing_rate.is_some()];
    LACKS.iter().zip(asked).filter(|(_, asked)| *asked).map(|(what, _)| format!("not done: {what}")).collect()
}

type Attributes = Vec<(u16, Vec<u8>)>;

/// A route of the main table, as the kernel tells of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Route {
    header: [u8; Rtmsg::len()],
    attributes: Attributes,
    /// By number.
    metrics: Attributes,
}

/// A route that was changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Changed {
    before: Route,
    /// All that it was made; the last one counts.
    after: Vec<Route>,
}

/// The routes of this network namespace.
#[derive(Default)]
pub(super) struct Routes {
    /// What they have; with nothing asked for, what they had.
    wanted: Settings,
    changed: Vec<Changed>,
    /// Those that are no longer touched, and why.
    apart: BTreeMap<Name, String>,
    /// All that are left alone, and why.
    pub(super) left_alone: Vec<String>,
}

/// What tells a route from others.
type Name = (u8, u8, Vec<u8>, Vec<u8>);

impl Route {
    fn parse(header: &Rtmsg, attributes: &[u8]) -> Self {
        let mut header = header.clone();
        header.rtm_flags &= FLAGS;
        let (mut own, mut metrics) = (Vec::new(), Vec::new());
        for (kind, value) in split(attributes) {
            match kind {
                METRICS => metrics = split(&value),
                CACHE => {}
                _ => own.push((kind, value)),
            }
        }
        metrics.sort();
        Self { header: *header.as_array(), attributes: own, metrics }
    }

    fn header(&self) -> Rtmsg {
        Rtmsg::new_from_array(self.header)
    }

    fn attribute(&self, kind: u16) -> Option<&[u8]> {
        self.attributes.iter().find(|(own, _)| *own == kind).map(|(_, value)| &**value)
    }

    fn name(&self) -> Name {
        let bytes = |kind| self.attribute(kind).unwrap_or_default().to_vec();
        (self.header().rtm_dst_len, self.header().rtm_tos, bytes(DESTINATION), bytes(PRIORITY))
    }

    /// It forwards; others of its name may refuse or drop.
    fn is_unicast(&self) -> bool {
        self.header().rtm_type == UNICAST
    }

    /// With the metrics that settings ask for.
    fn with(&self, settings: &Settings) -> Self {
        let mut metrics: BTreeMap<u16, Vec<u8>> = self.metrics.iter().cloned().collect();
        let number = |number: u32| number.to_ne_bytes().to_vec();
        if let Some(segments) = settings.initial_window {
            metrics.insert(INITIAL_WINDOW, number(segments));
        }
        if let Some(timeout) = settings.least_timeout {
            let millis = timeout.as_nanos().div_ceil(1_000_000);
            metrics.insert(LEAST_TIMEOUT, number(u32::try_from(millis).unwrap_or(u32::MAX)));
            // The kernel heeds it only when it is locked.
            let locked = metrics.get(&LOCK).and_then(|bytes| bytes.as_slice().try_into().ok());
            metrics.insert(LOCK, number(locked.map_or(0, u32::from_ne_bytes) | 1 << LEAST_TIMEOUT));
        }
        if let Some(control) = &settings.control {
            metrics.insert(CONTROL, [control.as_bytes(), b"\0"].concat());
        }
        Self { metrics: metrics.into_iter().collect(), ..self.clone() }
    }

    /// Puts it in the place of the one of its name.
    fn put(&self, socket: &mut NetlinkSocket) -> Result<(), ReplyError> {
        let mut request = Request::new().set_replace().op_newroute_do(&self.header());
        let mut attributes = self.attributes.clone();
        if !self.metrics.is_empty() {
            attributes.push((METRICS, joined(&self.metrics)));
        }
        request.encode().as_vec_mut().extend(joined(&attributes));
        socket.request(&request)?.recv_ack()
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = self.attribute(DESTINATION).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        match address.map(std::net::Ipv4Addr::from) {
            Some(address) => write!(f, "{address}/{}", self.header().rtm_dst_len),
            None => f.write_str("default"),
        }?;
        let index = self.attribute(DEVICE).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
        match index.and_then(|index| nix::net::if_::if_indextoname(index).ok()) {
            Some(device) => write!(f, " dev {}", device.to_string_lossy()),
            None => Ok(()),
        }
    }
}

pub(super) fn split(mut rest: &[u8]) -> Attributes {
    let mut all = Vec::new();
    while let Some((head, _)) = rest.split_at_checked(4) {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let Some(value) = rest.get(4..length) else { break };
        all.push((u16::from_ne_bytes([head[2], head[3]]) & !LAYOUT, value.to_vec()));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

fn joined(attributes: &Attributes) -> Vec<u8> {
    let mut all = Vec::new();
    for (kind, value) in attributes {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        all.extend(length.to_ne_bytes());
        all.extend(kind.to_ne_bytes());
        all.extend(value);
        all.resize(all.len().next_multiple_of(4), 0);
    }
    all
}

fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::Failed(format!("error: routes: {error}"))
}

/// IPv4 routes of the main table by their names, of any type, in the kernel's order: those of names that are `asked` for. More than
/// `most` that forward are not read.
fn read(asked: impl Fn(&Name) -> bool, most: usize) -> Result<BTreeMap<Name, Vec<Route>>, Error> {
    let mut socket = NetlinkSocket::new();
    let of = Rtmsg { rtm_family: libc::AF_INET as u8, ..Rtmsg::default() };
    let request = Request::new().op_getroute_dump(&of);
    let mut answer = socket.request(&request).map_err(|error| failed(&error))?;
    let (mut all, mut count) = (BTreeMap::<Name, Vec<Route>>::new(), 0);
    while let Some(item) = answer.recv() {
        let (header, attributes) = item.map_err(|error| failed(&error))?;
        let is_cloned = header.rtm_flags & CLONED != 0;
        if (header.rtm_family, header.rtm_table) != (of.rtm_family, MAIN) || is_cloned {
            continue;
        }
        let route = Route::parse(&header, attributes.get_buf());
        let name = route.name();
        if !asked(&name) {
            continue;
        }
        count += usize::from(route.is_unicast());
        if count > most {
            return Err(failed(&format_args!("there are more than the {most} that are set")));
        }
        all.entry(name).or_default().push(route);
    }
    Ok(all)
}

/// Why routes of one name are left alone.
fn obstacle(routes: &[Route]) -> Option<&'static str> {
    let has = |kind| routes.iter().any(|route| route.attribute(kind).is_some());
    match routes.len() {
        // The kernel would change the first.
        2.. => Some("there are several"),
        _ if has(MULTIPATH) => Some("goes over several ways"),
        _ if has(NEXT_HOP) => Some("has a nexthop object"),
        _ => None,
    }
}

/// What has become of a route that was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// None has its name.
    Gone,
    /// It is what it was.
    AsBefore,
    /// It is what it was made.
    Ours,
    /// So it is, but another of its name comes first, which the kernel would change.
    Behind,
    /// Somebody has changed it.
    Others,
}

impl Changed {
    /// With these routes of its name, in the kernel's order.
    fn fate(&self, now: &[Route]) -> Fate {
        let is_ours = |route: &Route| self.after.contains(route);
        match now {
            [] => Fate::Gone,
            [first, ..] if *first != self.before && is_ours(first) => Fate::Ours,
            [_, rest @ ..] if rest.iter().any(is_ours) => Fate::Behind,
            [first, ..] if *first == self.before => Fate::AsBefore,
            _ => Fate::Others,
        }
    }
}

/// What came of giving routes back.
#[derive(Default, Debug)]
pub(super) struct Back {
    /// Routes that were given back.
    pub(super) count: usize,
    /// Those that somebody has changed since.
    pub(super) left_alone: Vec<String>,
    /// Those that still have our values.
    kept: Vec<Changed>,
    /// Why a route was not given back: one line per route in `kept`.
    errors: Vec<String>,
}

impl Back {
    /// # Errors
    /// When some routes still have our values.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.errors.is_empty() {
            true => Ok(()),
            false => Err(failed(&self.errors.join("; "))),
        }
    }
}

/// Gives changed routes back what they were.
///
/// # Errors
/// When routes cannot be read.
pub(super) fn give_back(changed: &[Changed]) -> Result<Back, Error> {
    let mut back = Back::default();
    if changed.is_empty() {
        return Ok(back);
    }
    let names: BTreeSet<Name> = changed.iter().map(|known| known.before.name()).collect();
    let now = read(|name| names.contains(name), usize::MAX)?;
    let (mut socket, mut done) = (NetlinkSocket::new(), BTreeSet::new());
    // One that went and came back counts as it came last.
    for known in changed.iter().rev() {
        let name = known.before.name();
        let routes = now.get(&name).map_or(&[][..], Vec::as_slice);
        if !done.insert(name) {
            continue;
        }
        let why = match known.fate(routes) {
            Fate::Gone | Fate::AsBefore => continue,
            Fate::Others => {
                back.left_alone.push(changed_since(&routes[0]));
                continue;
            }
            Fate::Behind => BEHIND.to_owned(),
            Fate::Ours => match known.before.put(&mut socket) {
                Ok(()) => {
                    back.count += 1;
                    continue;
                }
                Err(error) => error.to_string(),
            },
        };
        back.errors.push(format!("{}: {why}", known.before));
        back.kept.push(known.clone());
    }
    back.kept.reverse();
    Ok(back)
}

fn changed_since(route: &Route) -> String {
    format!("{route}: somebody has changed it since")
}

/// Of the entries of a journal, in the order in which they were last changed.
pub(super) fn changed(entries: &[Entry]) -> Vec<Changed> {
    let mut all: Vec<Changed> = Vec::new();
    for entry in entries {
        let Entry::Route { before, after } = entry else { continue };
        let mut known = match all.iter().position(|known| known.before == *before) {
            Some(place) => all.remove(place),
            None => Changed { before: before.clone(), after: Vec::new() },
        };
        known.after.push(after.clone());
        all.push(known);
    }
    all
}

impl Routes {
    /// Routes that have what was asked for.
    pub(super) fn len(&self) -> usize {
        self.changed.len()
    }

    /// Entries of all that is changed.
    pub(super) fn all(&self) -> impl Iterator<Item = Entry> {
        self.changed.iter().flat_map(|changed| {
            let entry = |after: &Route| Entry::Route { before: changed.before.clone(), after: after.clone() };
            changed.after.iter().map(entry)
        })
    }

    /// Applies `settings` to all routes, also to routes added since the last call; none: applies the last settings again. `note`
    /// writes new entries to the journal. Each call retries the routes that could not be given back.
    ///
    /// # Errors
    /// When routes cannot be read or the journal cannot be written; then no route changes. When some routes cannot be given back;
    /// the others are.
    pub(super) fn put(
        &mut self,
        settings: Option<&Settings>,
        note: impl FnOnce(&[Entry]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let settings = settings.unwrap_or(&self.wanted).clone();
        let is_other = settings != self.wanted;
        if settings == Settings::default() {
            if is_other {
                self.wanted = settings;
                self.left_alone = std::mem::take(&mut self.apart).into_values().collect();
            }
            let back = give_back(&self.changed)?;
            let checked = back.check();
            self.left_alone.extend(back.left_alone);
            self.changed = back.kept;
            return checked;
        }
        let mut now = read(|_| true, MOST_ROUTES)?;
        self.apart.retain(|name, _| now.contains_key(name));
        let (mut changed, mut new, mut left_alone) = (Vec::new(), Vec::new(), Vec::new());
        for mut known in std::mem::take(&mut self.changed) {
            let name = known.before.name();
            // One that is gone and comes back is another.
            let Some(routes) = now.get(&name) else { continue };
            match known.fate(routes) {
                Fate::Gone => continue,
                // Nothing of ours is left among them.
                Fate::AsBefore if routes.len() > 1 => continue,
                Fate::Others => {
                    self.apart.insert(name, changed_since(&routes[0]));
                    continue;
                }
                Fate::Behind => {
                    left_alone.push(format!("{}: {BEHIND}", known.before));
                    now.remove(&name);
                    changed.push(known);
                    continue;
                }
                Fate::AsBefore | Fate::Ours => {}
            }
            let (route, after) = (&routes[0], known.before.with(&settings));
            // What the kernel has refused once is not tried again until something else is asked for.
            if after == *route || is_other || !self.apart.contains_key(&name) {
                if after == *route {
                    self.apart.remove(&name);
                } else {
                    new.push((known.before.clone(), after.clone()));
                }
                known.after.retain(|one| one == route && *one != after);
                known.after.push(after);
            }
            now.remove(&name);
            changed.push(known);
        }
        for (name, routes) in now {
            if !routes.iter().any(Route::is_unicast) || self.apart.contains_key(&name) {
                continue;
            }
            let route = &routes[0];
            if let Some(why) = obstacle(&routes) {
                left_alone.push(format!("{route}: {why}"));
                continue;
            }
            let after = route.with(&settings);
            if after != *route {
                new.push((route.clone(), after.clone()));
                changed.push(Changed { before: route.clone(), after: vec![after] });
            }
        }
        self.changed = changed;
        if !new.is_empty() {
            let entry = |(before, after): &(Route, Route)| Entry::Route {
                before: before.clone(),
                after: after.clone(),
            };
            note(&new.iter().map(entry).collect::<Vec<_>>())?;
        }
        self.wanted = settings;
        let mut socket = NetlinkSocket::new();
        for (before, after) in &new {
            match after.put(&mut socket) {
                Ok(()) => drop(self.apart.remove(&before.name())),
                Err(error) => {
                    self.take_back(before);
                    self.apart.insert(before.name(), format!("{before}: {error}"));
                }
            }
        }
        for known in &mut self.changed {
            known.after.drain(..known.after.len() - 1);
        }
        left_alone.extend(self.apart.values().cloned());
        self.left_alone = left_alone;
        Ok(())
    }

    /// The route has not become what it was to become last: what it was made before that counts, if anything.
    fn take_back(&mut self, before: &Route) {
        if let Some(place) = self.changed.iter().position(|known| known.before == *before) {
            self.changed[place].after.pop();
            if self.changed[place].after.is_empty() {
                self.changed.remove(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::time::Span;

    use super::*;

    /// `default via 10.0.0.1 dev 3 mtu 1400`, with what the kernel tells of its cache and of the device.
    fn route() -> Route {
        let header =
            Rtmsg { rtm_family: 2, rtm_table: MAIN, rtm_type: UNICAST, rtm_flags: 16, ..Rtmsg::default() };
        let metrics = joined(&vec![(2, 1400u32.to_ne_bytes().to_vec())]);
        let attributes =
            vec![(5, vec![10, 0, 0, 1]), (CACHE, vec![0; 32]), (METRICS, metrics), (4, vec![3, 0, 0, 0])];
        Route::parse(&header, &joined(&attributes))
    }

    #[test]
    fn a_route_keeps_its_own_metrics_and_gets_those_that_are_asked_for() {
        let before = route();
        assert_eq!(before.header().rtm_flags, 0, "the device has no carrier, and a route says no such thing");
        let settings = Settings {
            control: Some("reno".to_owned()),
            initial_window: Some(25),
            least_timeout: Some(Span::from_micros(7500)),
            window_cap: Some(40),
            ..Settings::default()
        };
        let after = before.with(&settings);
        let number = |number: u32| number.to_ne_bytes().to_vec();
        let metrics = vec![
            (LOCK, number(1 << LEAST_TIMEOUT)),
            (2, number(1400)),
            (INITIAL_WINDOW, number(25)),
            (LEAST_TIMEOUT, number(8)),
            (CONTROL, b"reno\0".to_vec()),
        ];
        assert_eq!(after.metrics, metrics);
        assert_eq!((after.name(), &after.attributes), (before.name(), &before.attributes));
        assert_eq!(before.with(&Settings::default()), before);
        assert_eq!(split(&joined(&after.metrics)), after.metrics);
    }

    fn with(before: &Route, segments: u32) -> Route {
        before.with(&Settings { initial_window: Some(segments), ..Settings::default() })
    }

    /// The same with another gateway.
    fn other() -> Route {
        let mut other = route();
        other.attributes[0] = (5, vec![10, 0, 0, 2]);
        other
    }

    #[test]
    fn what_became_of_a_route_is_told_from_all_of_its_name() {
        let before = route();
        let (one, two) = (with(&before, 20), with(&before, 30));
        let known = Changed { before: before.clone(), after: vec![one.clone(), two.clone()] };
        assert_eq!(known.fate(&[]), Fate::Gone);
        assert_eq!(known.fate(std::slice::from_ref(&before)), Fate::AsBefore);
        assert_eq!(known.fate(&[before.clone(), other()]), Fate::AsBefore);
        for ours in [one, two] {
            assert_eq!(known.fate(std::slice::from_ref(&ours)), Fate::Ours);
            assert_eq!(known.fate(&[ours.clone(), other()]), Fate::Ours);
            assert_eq!(known.fate(&[other(), ours.clone()]), Fate::Behind);
            assert_eq!(known.fate(&[before.clone(), ours]), Fate::Behind);
        }
        assert_eq!(known.fate(&[with(&before, 40)]), Fate::Others);
        assert_eq!(known.fate(&[other(), before]), Fate::Others);
    }

    #[test]
    fn routes_of_one_name_are_left_alone() {
        let mut blackhole = route();
        let header = Rtmsg { rtm_type: 6, ..blackhole.header() };
        blackhole.header = *header.as_array();
        assert!(route().is_unicast() && !blackhole.is_unicast());
        assert_eq!(blackhole.name(), route().name());
        assert_eq!(obstacle(&[blackhole, route()]), Some("there are several"));
        assert_eq!(obstacle(&[route()]), None);
    }

    /// What the kernel refuses to make of a route leaves what it was made before.
    #[test]
    fn a_route_that_cannot_be_set_keeps_what_it_has() {
        let before = route();
        let after = vec![with(&before, 20), with(&before, 30)];
        let mut routes =
            Routes { changed: vec![Changed { before: before.clone(), after }], ..Routes::default() };
        routes.take_back(&before);
        assert_eq!(routes.changed, [Changed { before: before.clone(), after: vec![with(&before, 20)] }]);
        routes.take_back(&before);
        assert_eq!(routes.len(), 0);
    }

    /// One that has gone and come back as it was counts after the one between.
    #[test]
    fn routes_of_a_journal_are_in_the_order_of_their_last_change() {
        let entry =
            |before: &Route, segments| Entry::Route { before: before.clone(), after: with(before, segments) };
        let (one, two) = (route(), other());
        let read = changed(&[entry(&one, 20), entry(&two, 20), entry(&one, 30)]);
        let first = Changed { before: two.clone(), after: vec![with(&two, 20)] };
        let last = Changed { before: one.clone(), after: vec![with(&one, 20), with(&one, 30)] };
        assert_eq!(read, [first, last]);
    }

    /// A journal with two tunings: either may be what is there.
    #[test]
    fn a_journal_tells_all_that_a_route_was_made() {
        let before = route();
        let entry = |segments| Entry::Route { before: before.clone(), after: with(&before, segments) };
        let written = [Entry::begin(), entry(20), entry(30)];
        let text: Vec<String> =
            written.iter().map(|entry| serde_json::to_string(entry).expect("text")).collect();
        let read: Vec<Entry> =
            text.iter().map(|line| serde_json::from_str(line).expect("an entry")).collect();
        let after = vec![with(&before, 20), with(&before, 30)];
        assert_eq!(changed(&read), [Changed { before: before.clone(), after }]);
    }
}

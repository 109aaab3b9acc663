//! Sets the TCP of connections that begin by the metrics of routes: for where the kernel takes no program.
//!
//! A route is changed as a whole: the kernel's own message of it goes back with other metrics. What it was is written down
//! before, and goes back only in the place of what was set.

use std::collections::{BTreeMap, BTreeSet};

use netlink_bindings::rt_route::{Request, Rtmsg};
use netlink_bindings::traits::Pusher;
use netlink_socket2::{NetlinkSocket, ReplyError};
use serde::{Deserialize, Serialize};

use super::journal::Entry;
use crate::daemon::Error;
use crate::kernel::tcp::Settings;

/// More routes than these are a router's, and are left alone.
const MOST_ROUTES: usize = 1000;
/// `RT_TABLE_MAIN`, `RTN_UNICAST`.
const MAIN: u8 = 254;
const UNICAST: u8 = 1;
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

/// IPv4 routes of the main table, each by its name; those that are left alone, with the reason.
fn read() -> Result<(BTreeMap<Name, Route>, Vec<String>), Error> {
    let mut socket = NetlinkSocket::new();
    let of = Rtmsg { rtm_family: libc::AF_INET as u8, ..Rtmsg::default() };
    let request = Request::new().op_getroute_dump(&of);
    let mut answer = socket.request(&request).map_err(|error| failed(&error))?;
    let mut all = BTreeMap::<Name, Vec<Route>>::new();
    while let Some(item) = answer.recv() {
        let (header, attributes) = item.map_err(|error| failed(&error))?;
        if (header.rtm_family, header.rtm_table, header.rtm_type) == (of.rtm_family, MAIN, UNICAST) {
            let route = Route::parse(&header, attributes.get_buf());
            all.entry(route.name()).or_default().push(route);
        }
    }
    if all.len() > MOST_ROUTES {
        return Err(failed(&format_args!("{} are more than the {MOST_ROUTES} that are set", all.len())));
    }
    let mut left_alone = Vec::new();
    all.retain(|_, routes| {
        let has = |kind| routes[0].attribute(kind).is_some();
        let why = match routes.len() {
            // The kernel would change the first.
            2.. => "there are several",
            _ if has(MULTIPATH) => "goes over several ways",
            _ if has(NEXT_HOP) => "has a nexthop object",
            _ => return true,
        };
        left_alone.push(format!("{}: {why}", routes[0]));
        false
    });
    let one = |(name, mut routes): (Name, Vec<Route>)| Some((name, routes.pop()?));
    Ok((all.into_iter().filter_map(one).collect(), left_alone))
}

/// Gives changed routes back what they were. How many, and which are left alone, as somebody has changed them since.
pub(super) fn give_back(changed: &[Changed]) -> Result<(usize, Vec<String>), Error> {
    if changed.is_empty() {
        return Ok((0, Vec::new()));
    }
    let (now, _) = read()?;
    let (mut count, mut left_alone, mut errors) = (0, Vec::new(), Vec::new());
    let (mut socket, mut done) = (NetlinkSocket::new(), BTreeSet::new());
    // One that went and came back counts as it came last.
    for Changed { before, after } in changed.iter().rev() {
        if !done.insert(before.name()) {
            continue;
        }
        match now.get(&before.name()) {
            // It is gone, or is what it was.
            None => {}
            Some(route) if route == before => {}
            Some(route) if after.contains(route) => match before.put(&mut socket) {
                Ok(()) => count += 1,
                Err(error) => errors.push(format!("{before}: {error}")),
            },
            Some(route) => left_alone.push(changed_since(route)),
        }
    }
    match errors.is_empty() {
        true => Ok((count, left_alone)),
        false => Err(failed(&errors.join("; "))),
    }
}

fn changed_since(route: &Route) -> String {
    format!("{route}: somebody has changed it since")
}

/// Of the entries of a journal.
pub(super) fn changed(entries: &[Entry]) -> Vec<Changed> {
    let mut all: Vec<Changed> = Vec::new();
    for entry in entries {
        let Entry::Route { before, after } = entry else { continue };
        match all.iter_mut().find(|known| known.before == *before) {
            Some(known) => known.after.push(after.clone()),
            None => all.push(Changed { before: before.clone(), after: vec![after.clone()] }),
        }
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

    /// Has all routes have what `settings` say, those too that have come since the last time; none: what was said last. `note`
    /// writes down what is new.
    ///
    /// # Errors
    /// When routes cannot be read, or nothing can be written down: then nothing is changed.
    pub(super) fn put(
        &mut self,
        settings: Option<&Settings>,
        note: impl FnOnce(&[Entry]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let settings = settings.unwrap_or(&self.wanted).clone();
        if settings == Settings::default() {
            if self.wanted != settings {
                let (_, left_alone) = give_back(&self.changed)?;
                let left_alone = self.apart.values().cloned().chain(left_alone).collect();
                *self = Self { left_alone, ..Self::default() };
            }
            return Ok(());
        }
        let (mut now, mut left_alone) = read()?;
        let (mut changed, mut new) = (Vec::new(), Vec::new());
        for mut known in std::mem::take(&mut self.changed) {
            let (before, name) = (&known.before, known.before.name());
            // One that is gone and comes back is another.
            let Some(route) = now.get(&name) else { continue };
            if route != before && !known.after.contains(route) {
                self.apart.insert(name, changed_since(route));
                continue;
            }
            let after = before.with(&settings);
            if after != *route {
                new.push((before.clone(), after.clone()));
            }
            now.remove(&name);
            if known.after.last() != Some(&after) {
                known.after.push(after);
            }
            changed.push(known);
        }
        self.apart.retain(|name, _| now.contains_key(name));
        for (name, route) in now {
            let after = route.with(&settings);
            if after != route && !self.apart.contains_key(&name) {
                new.push((route.clone(), after.clone()));
                changed.push(Changed { before: route, after: vec![after] });
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
            if let Err(error) = after.put(&mut socket) {
                self.changed.retain(|known| known.before != *before);
                self.apart.insert(before.name(), format!("{before}: {error}"));
            }
        }
        for known in &mut self.changed {
            known.after.drain(..known.after.len() - 1);
        }
        left_alone.extend(self.apart.values().cloned());
        self.left_alone = left_alone;
        Ok(())
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

    /// A journal with two tunings: either may be what is there.
    #[test]
    fn a_journal_tells_all_that_a_route_was_made() {
        let before = route();
        let with =
            |segments| before.with(&Settings { initial_window: Some(segments), ..Settings::default() });
        let entry = |segments| Entry::Route { before: before.clone(), after: with(segments) };
        let written = [Entry::begin(), entry(20), entry(30)];
        let text: Vec<String> =
            written.iter().map(|entry| serde_json::to_string(entry).expect("text")).collect();
        let read: Vec<Entry> =
            text.iter().map(|line| serde_json::from_str(line).expect("an entry")).collect();
        assert_eq!(changed(&read), [Changed { before: before.clone(), after: vec![with(20), with(30)] }]);
    }
}

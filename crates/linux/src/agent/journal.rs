//! Journal of what an agent sets on connections, so that it can be undone after the agent was killed.
//!
//! While the agent runs, the kernel keeps each connection's earlier settings. The journal is for afterwards. It holds the
//! tunings, written before they are put in force, and the earlier settings of connections, which the next look finds.

use std::collections::BTreeMap;
use std::path::Path;

use bandmaster_core::time::Span;
use serde::{Deserialize, Serialize};

use super::bounds;
use super::routes::{self, Route};
use crate::daemon::Error;
use crate::daemon::state::{self, State, boot, namespace, namespace_lives, namespace_name};
use crate::kernel::NoProgram;
use crate::kernel::tcp::{Before, Connection, HostTcp, Settings};
use crate::netns::parameter;

/// Version of the journal.
const VERSION: u32 = 1;
/// The kernel's least timeout, where `tcp_rto_min_us` is not known.
const LEAST_TIMEOUT: Span = Span::from_millis(200);
/// The highest cap that can be set; as good as none.
pub(super) const NO_CAP: u32 = i32::MAX as u32;

/// A line of the journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub(super) enum Entry {
    /// An agent begins.
    Begin {
        /// Version of the journal.
        version: u32,
        /// Its process.
        process: u32,
        /// The machine's life, with which all connections end.
        boot: String,
        /// Its network namespace.
        namespace: u64,
    },
    /// These settings come into force for connections that begin.
    Tune {
        /// What.
        settings: Settings,
    },
    /// A connection, or a listening socket, has been set.
    Set {
        /// Its number.
        cookie: u64,
        /// What it had before.
        before: Before,
    },
    /// A route gets other metrics.
    Route {
        /// What it was before the agent.
        before: Route,
        /// What it becomes.
        after: Route,
    },
    /// A live connection is bounded for the first time.
    Bound {
        /// Its number.
        cookie: u64,
        /// What it has before.
        before: Before,
    },
}

impl Entry {
    /// The first line.
    pub(super) fn begin() -> Self {
        Self::Begin { version: VERSION, process: std::process::id(), boot: boot(), namespace: namespace() }
    }
}

/// What `restore` found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Restored {
    /// No journal: nothing was left.
    Nothing,
    /// It was undone.
    Done {
        /// Connections and listening sockets that were given back what they had.
        connections: usize,
        /// Routes that are what they were.
        routes: usize,
        /// Routes that are left alone, and why.
        left_alone: Vec<String>,
    },
    /// The journal was of an earlier life of the machine, whose connections are gone.
    Gone,
}

/// Gives connections back what they had, after an agent with state in `folder` was killed. `force`: forget the journal of a
/// network namespace that is gone.
///
/// # Errors
/// When an agent runs with the folder, the journal is of another network namespace, or the kernel refuses.
pub fn restore(folder: &Path, force: bool) -> Result<Restored, Error> {
    if state::read::<Entry>(folder)?.is_none() {
        // An agent that runs has a journal.
        return Ok(Restored::Nothing);
    }
    let state = State::hold(folder)?;
    if force
        && let Some(number) = other_namespace(&state)?
        && !namespace_lives(number)
    {
        state.forget()?;
        return Ok(Restored::Gone);
    }
    undo(&state, None)
}

fn other_namespace(state: &State<Entry>) -> Result<Option<u64>, Error> {
    Ok(match state.left()?.as_deref() {
        Some([Entry::Begin { namespace: number, .. }, ..]) if *number != namespace() => Some(*number),
        _ => None,
    })
}

/// Undoes what the journal tells; the programs in the kernel are loaded when there is something to undo and there are none.
pub(super) fn undo(state: &State<Entry>, tcp: Option<&mut HostTcp>) -> Result<Restored, Error> {
    let entries = match to_undo(state)? {
        Ok(entries) => entries,
        Err(nothing) => return Ok(nothing),
    };
    let back = routes::give_back(&routes::changed(&entries))?;
    back.check()?;
    let left = Left::of(&entries);
    let restored = match (left.tunings.is_empty() && left.bounded.is_empty(), tcp) {
        (true, _) => Ok(0),
        (false, Some(tcp)) => left.give_back(tcp),
        (false, None) => left.give_back(&mut super::programs().map_err(|why| super::lacking(&why))?),
    };
    let connections = restored.map_err(|why| Error::Failed(format!("error: {why}")))?;
    state.forget()?;
    Ok(Restored::Done { connections, routes: back.count, left_alone: back.left_alone })
}

/// Gives back the routes that the journal tells of, for which no programs are needed: how many. The journal stays, for the rest.
pub(super) fn undo_routes(state: &State<Entry>) -> Result<usize, Error> {
    let Ok(entries) = to_undo(state)? else { return Ok(0) };
    let back = routes::give_back(&routes::changed(&entries))?;
    back.check()?;
    Ok(back.count)
}

/// What the journal tells; or that there is nothing to undo, and then it is forgotten.
fn to_undo(state: &State<Entry>) -> Result<Result<Vec<Entry>, Restored>, Error> {
    let Some(entries) = state.left()? else { return Ok(Err(Restored::Nothing)) };
    let Some(Entry::Begin { version, boot: life, namespace: place, .. }) = entries.first() else {
        // Cut off before anything was set.
        state.forget()?;
        return Ok(Err(Restored::Nothing));
    };
    if *version > VERSION {
        return Err(Error::Failed(format!(
            "error: the journal in {} is of version {version}; this program reads version {VERSION}",
            state.folder().display()
        )));
    }
    if *life != boot() {
        state.forget()?;
        return Ok(Err(Restored::Gone));
    }
    if *place != namespace() {
        let whereabouts = match namespace_name(*place) {
            Some(name) => format!("run this there (ip netns exec {name} ...)"),
            None if namespace_lives(*place) => "run this there (nsenter --net)".to_owned(),
            None => "it is gone: `agent restore --force` forgets the journal".to_owned(),
        };
        return Err(Error::Missing(format!(
            "error: the journal in {} is of another network namespace; {whereabouts}",
            state.folder().display()
        )));
    }
    Ok(Ok(entries))
}

/// What an agent left in force.
struct Left {
    tunings: Vec<Settings>,
    before: BTreeMap<u64, Before>,
    /// Live connections that were bounded.
    bounded: BTreeMap<u64, Before>,
    /// What the host gives to connections that nobody sets.
    own: Before,
}

impl Left {
    fn of(entries: &[Entry]) -> Self {
        let (tunings, before, bounded) = Default::default();
        let mut left = Self { tunings, before, bounded, own: own() };
        for entry in entries {
            match entry {
                Entry::Begin { .. } | Entry::Route { .. } => {}
                Entry::Tune { settings } => {
                    if *settings != Settings::default() {
                        left.tunings.push(settings.clone());
                    }
                }
                Entry::Set { cookie, before } => drop(left.before.insert(*cookie, before.clone())),
                Entry::Bound { cookie, before } => drop(left.bounded.insert(*cookie, before.clone())),
            }
        }
        left
    }

    /// How many connections were set back.
    fn give_back(&self, tcp: &mut HostTcp) -> Result<usize, NoProgram> {
        let mut set = Vec::new();
        for connection in tcp.look_at_all()? {
            let back = self.back(&connection);
            if back != Settings::default() {
                tcp.set(connection.cookie, &back)?;
                set.push(connection.cookie);
            }
        }
        if !set.is_empty() {
            tcp.look_at_all()?;
        }
        for cookie in &set {
            tcp.leave(*cookie)?;
        }
        Ok(set.len())
    }

    /// What to set on a connection so that it has what it had: only what one of the tunings has set.
    fn back(&self, now: &Connection) -> Settings {
        if let Some(before) = self.bounded.get(&now.cookie) {
            return bounds::back(before);
        }
        let before = match self.before.get(&now.cookie) {
            Some(before) => before,
            // It began after the last look. Its settings match a tuning, and no program chooses these on its own.
            None if self.tunings.iter().any(|tuning| bears(now, tuning)) => &self.own,
            None => return Settings::default(),
        };
        let was_set = |is: &dyn Fn(&Settings) -> bool| self.tunings.iter().any(is);
        let mut back = Settings::default();
        if now.control != before.control
            && was_set(&|tuning| tuning.control.as_ref().is_some_and(|name| *name == now.control))
        {
            back.control = Some(before.control.clone());
        }
        if now.least_timeout != before.least_timeout
            && was_set(&|tuning| tuning.least_timeout == Some(now.least_timeout))
        {
            back.least_timeout = Some(before.least_timeout);
        }
        if now.window_cap != before.window_cap && was_set(&|tuning| tuning.window_cap == Some(now.window_cap))
        {
            back.window_cap = Some(before.window_cap.min(NO_CAP));
        }
        if now.pacing_rate != before.pacing_rate
            && was_set(&|tuning| tuning.pacing_rate.map(u64::from) == now.pacing_rate)
        {
            let rate = before.pacing_rate.and_then(|rate| u32::try_from(rate).ok());
            back.pacing_rate = Some(rate.unwrap_or(u32::MAX));
        }
        back
    }
}

/// Whether a connection has all of a tuning, of which one part is such that programs do not set it.
fn bears(now: &Connection, tuning: &Settings) -> bool {
    (tuning.least_timeout.is_some() || tuning.window_cap.is_some())
        && tuning.control.as_ref().is_none_or(|name| *name == now.control)
        && tuning.least_timeout.is_none_or(|least| least == now.least_timeout)
        && tuning.window_cap.is_none_or(|cap| cap == now.window_cap)
        && tuning.pacing_rate.is_none_or(|rate| Some(u64::from(rate)) == now.pacing_rate)
}

fn own() -> Before {
    let micros = parameter("net.ipv4.tcp_rto_min_us").and_then(|text| text.trim().parse().ok());
    Before {
        control: parameter("net.ipv4.tcp_congestion_control").unwrap_or_default().trim().to_owned(),
        least_timeout: micros.map_or(LEAST_TIMEOUT, Span::from_micros),
        window_cap: NO_CAP,
        pacing_rate: None,
        receive_window: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before() -> Before {
        Before {
            control: "cubic".to_owned(),
            least_timeout: Span::from_millis(200),
            window_cap: u32::MAX,
            ..Before::default()
        }
    }

    fn left(entries: &[Entry]) -> Left {
        Left { own: before(), ..Left::of(entries) }
    }

    fn tune(settings: Settings) -> Entry {
        Entry::Tune { settings }
    }

    fn connection(cookie: u64, control: &str, least_timeout: u64, window_cap: u32) -> Connection {
        Connection {
            cookie,
            local: ([10, 0, 0, 1].into(), 1),
            remote: ([10, 0, 0, 2].into(), 2),
            user: 0,
            acknowledged: 0,
            received: 0,
            cwnd: 10,
            window_cap,
            srtt: None,
            last_rtt: None,
            min_rtt: None,
            receiver_rtt: None,
            last_receiver_rtt: None,
            least_receiver_rtt: None,
            came_mss: 1448,
            header: 32,
            mss: 1448,
            data_segments: 0,
            resent: 0,
            control: control.to_owned(),
            least_timeout: Span::from_millis(least_timeout),
            pacing_rate: None,
            receive_window: 65_536,
            carries: true,
            followed: false,
            before: None,
        }
    }

    #[test]
    fn what_was_set_and_nothing_else_is_set_back() {
        let tuning = Settings {
            control: Some("reno".to_owned()),
            least_timeout: Some(Span::from_millis(8)),
            window_cap: Some(40),
            ..Settings::default()
        };
        let set = |cookie| Entry::Set { cookie, before: before() };
        let left = left(&[Entry::begin(), tune(tuning), set(1), set(2)]);
        let all = Settings {
            control: Some("cubic".to_owned()),
            least_timeout: Some(Span::from_millis(200)),
            window_cap: Some(NO_CAP),
            ..Settings::default()
        };
        assert_eq!(left.back(&connection(1, "reno", 8, 40)), all);
        // Its program has chosen another control since.
        assert_eq!(left.back(&connection(2, "bbr", 8, 40)), Settings { control: None, ..all.clone() });
        // Seen by nobody before the agent was killed, and set by nobody else.
        assert_eq!(left.back(&connection(3, "reno", 8, 40)), all);
        assert_eq!(left.back(&connection(4, "reno", 200, u32::MAX)), Settings::default());
    }

    #[test]
    fn a_bounded_connection_is_let_go() {
        let had = Before { receive_window: Some(3_000_000), ..before() };
        let left = left(&[Entry::begin(), Entry::Bound { cookie: 1, before: had.clone() }]);
        assert_eq!(left.back(&connection(1, "cubic", 200, 12)), bounds::back(&had));
        assert_eq!(left.back(&connection(2, "cubic", 200, 12)), Settings::default());
    }

    /// A program may choose a congestion control: without the journal's word nobody can tell whose it is.
    #[test]
    fn a_control_alone_proves_nothing() {
        let left = left(&[tune(Settings { control: Some("reno".to_owned()), ..Settings::default() })]);
        assert_eq!(left.back(&connection(3, "reno", 200, u32::MAX)), Settings::default());
    }

    /// Settings that came and went before the agent was killed.
    #[test]
    fn connections_of_every_tuning_are_known() {
        let least =
            |millis| Settings { least_timeout: Some(Span::from_millis(millis)), ..Settings::default() };
        let left = left(&[tune(least(8)), tune(Settings::default()), tune(least(12))]);
        for millis in [8, 12] {
            let back = left.back(&connection(1, "cubic", millis, u32::MAX));
            assert_eq!(back.least_timeout, Some(Span::from_millis(200)));
        }
    }
}

//! A router's surroundings: its neighbours as lldpd hears them, and this machine's routes.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

use bandmaster_core::agent::{Deployment, OWN};
use bandmaster_core::control::Message;
use bandmaster_core::neighbours::{self, MOST_ROWS, Row, What, plain};
use bandmaster_core::prefix::Prefix;
use bandmaster_core::time::Time;
use netlink_bindings::rt_route::{self, Rtmsg};
use netlink_socket2::{NetlinkSocket, ReplyError};
use serde_json::Value;

use super::routes::CLONED;
use crate::daemon::Error;

const PROGRAM: &str = "lldpctl";
/// Bytes of its answer that are read.
const MOST_ANSWER: u64 = 1 << 20;
/// Of routes.
const MAIN_TABLE: u8 = 254;
const UNICAST: u8 = 1;

/// Looks around once an interval in a thread of its own, since `lldpctl` may be slow.
pub(super) struct Surroundings {
    looks: Receiver<Vec<Row>>,
    number: u32,
    due: Time,
}

impl Surroundings {
    /// Looks from now on.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub(super) fn new(deployment: &Deployment) -> Result<Self, Error> {
        // One look ahead: the thread waits until it is wanted, and ends when nobody wants it.
        let (tell, looks) = sync_channel(0);
        let (socket, ports) = (deployment.lldp_socket.clone(), deployment.ports.clone());
        let look = move || {
            loop {
                let place = |(place, port): (u32, &bandmaster_core::agent::Port)| Row {
                    interface: plain(&port.interface),
                    what: What::Port { place, rate: port.rate.bits_per_sec() },
                };
                let mut rows: Vec<Row> = (0..).zip(&ports).map(place).collect();
                rows.extend(or_why(heard(socket.as_deref())));
                let routes = or_why(routes().map_err(|error| format!("rtnetlink: {error}")));
                match rows.len() + routes.len() > MOST_ROWS {
                    true => rows.extend(or_why(Err(format!("{} routes are too many", routes.len())))),
                    false => rows.extend(routes),
                }
                if tell.send(rows).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("neighbours".to_owned())
            .spawn(look)
            .map_err(|error| Error::Failed(format!("error: a thread: {error}")))?;
        Ok(Self { looks, number: 0, due: Time::ZERO })
    }

    /// What there is to send at `now`. What was seen is up to an interval old.
    pub(super) fn told(&mut self, now: Time) -> Vec<Message> {
        if now < self.due {
            return Vec::new();
        }
        match self.looks.try_recv() {
            Ok(rows) => {
                self.due = now + neighbours::INTERVAL;
                self.number = self.number.wrapping_add(1);
                let message = |body| Message { from: OWN, scheme: neighbours::CODE, body };
                neighbours::parts(self.number, rows).into_iter().map(message).collect()
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => Vec::new(),
        }
    }
}

fn or_why(told: Result<Vec<Row>, String>) -> Vec<Row> {
    told.unwrap_or_else(|why| {
        vec![Row { interface: String::new(), what: What::Unknown { why: plain(&why) } }]
    })
}

/// Who sends LLDP to which interface.
fn heard(socket: Option<&str>) -> Result<Vec<Row>, String> {
    let mut command = Command::new(PROGRAM);
    if let Some(socket) = socket {
        command.args(["-u", socket]);
    }
    command.args(["-f", "json0"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("{PROGRAM}: {error}"))?;
    let mut text = String::new();
    let read = child.stdout.take().map(|out| out.take(MOST_ANSWER).read_to_string(&mut text));
    let ended = child.wait().map_err(|error| format!("{PROGRAM}: {error}"))?;
    if !ended.success() || !matches!(read, Some(Ok(_))) {
        return Err(format!("{PROGRAM}: lldpd does not answer"));
    }
    neighbours(&text)
}

/// What `lldpctl -f json0` prints: each element is a list.
fn neighbours(text: &str) -> Result<Vec<Row>, String> {
    let all: Value = serde_json::from_str(text).map_err(|error| format!("{PROGRAM}: {error}"))?;
    let value = |of: &Value, keys: [&str; 2]| {
        keys.iter().find_map(|key| of[key][0]["value"].as_str()).unwrap_or_default().to_owned()
    };
    let interfaces = all["lldp"][0]["interface"].as_array().map_or(&[][..], Vec::as_slice);
    let row = |of: &Value| {
        let name = value(&of["chassis"][0], ["name", "id"]);
        let port = value(&of["port"][0], ["descr", "id"]);
        let interface = plain(of["name"].as_str()?);
        Some(Row { interface, what: What::Neighbour { name: plain(&name), port: plain(&port) } })
    };
    Ok(interfaces.iter().filter_map(row).collect())
}

/// Where packets leave by the main table, of addresses of one receiver. Routes over several ways are left out.
fn routes() -> Result<Vec<Row>, ReplyError> {
    let mut socket = NetlinkSocket::new();
    let mut all = Vec::new();
    let request = rt_route::Request::new().op_getroute_dump(&Rtmsg::default());
    let mut answer = socket.request(&request)?;
    let mut names = BTreeMap::new();
    while let Some(item) = answer.recv() {
        let (header, attributes) = item?;
        let any: IpAddr = match i32::from(header.rtm_family) {
            libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
            libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => continue,
        };
        let Ok(index) = attributes.get_oif() else { continue };
        let is_cloned = header.rtm_flags & CLONED != 0;
        if header.rtm_table != MAIN_TABLE || header.rtm_type != UNICAST || is_cloned {
            continue;
        }
        let prefix = Prefix::of(attributes.get_dst().unwrap_or(any), header.rtm_dst_len);
        let is_local = matches!(prefix.address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let name = names.entry(index).or_insert_with(|| nix::net::if_::if_indextoname(index).ok());
        if let Some(name) = name.as_ref().filter(|_| !is_local) {
            let interface = plain(&name.to_string_lossy());
            all.push(Row { interface, what: What::Route { prefix: prefix.to_string() } });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lldpctl_prints_is_read() {
        let text = r#"{"lldp":[{"interface":[{"name":"e0","chassis":[{"id":[{"type":"mac","value":"02:00:00:00:00:01"}],"name":[{"value":
            "web-1\u001b[31m"}]}],"port":[{"id":[{"type":"mac","value":"m"}],"descr":[{"value":"eth0"}]}]},{"name":"e1","chassis":
            [{"id":[{"type":"mac","value":"02:00:00:00:00:02"}]}],"port":[{}]}]}]}"#;
        let row = |interface: &str, name: &str, port: &str| Row {
            interface: interface.to_owned(),
            what: What::Neighbour { name: name.to_owned(), port: port.to_owned() },
        };
        let rows = vec![row("e0", "web-1\\u{1b}[31m", "eth0"), row("e1", "02:00:00:00:00:02", "")];
        assert_eq!(neighbours(text), Ok(rows));
        assert_eq!(neighbours(r#"{"lldp":[{}]}"#), Ok(Vec::new()));
        assert!(neighbours("nonsense").is_err() && heard(Some("/no/socket")).is_err());
        assert!(routes().is_ok());
    }
}

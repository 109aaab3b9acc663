//! Reads `[peer]`: where the other gateway is, and how messages prove themselves.

use std::net::{IpAddr, SocketAddr};

use super::keys::PEER;
use super::{ANY, Auth, Role, Whereabouts};
use crate::daemon::{is_host, many};
use crate::file::{Reader, Section};
use crate::params::choice;
use crate::time::Span;

/// The port in files that do not name one.
pub(super) const DEFAULT_PORT: &str = "4741";

choice! {
    pub(super) enum AuthKind { Hmac = "hmac", None = "none" }
}

/// The table `[peer]`.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) whereabouts: Whereabouts,
    pub(super) listen: SocketAddr,
    pub(super) keep_alive: Option<Span>,
    pub(super) auth: Auth,
}

pub(super) fn peer(reader: &mut Reader, file: &Section<'_>, role: Option<Role>) -> Option<Peer> {
    let layer = reader.table(file, "peer");
    let section = reader.section(&PEER, &layer);
    let plain = section.choice("auth") == Some(AuthKind::None);
    let own = section.text("listen-address").and_then(|text| {
        let address = text.parse::<IpAddr>().ok();
        let why = address.map_or(Some("is not an IP address, such as \"192.0.2.1\""), many);
        if let Some(why) = why {
            reader.fail_key(&section, "listen-address", format!("\"{text}\" {why}"));
        }
        address.filter(|_| why.is_none())
    });
    let text = section.text("address");
    let (peer, whereabouts) = match text.as_deref() {
        None => (None, Whereabouts::Fixed),
        Some(text) => match text.parse::<IpAddr>() {
            Ok(address) => {
                let none = "is no machine's address; write \"any\" when it is not known";
                if let Some(why) = address.is_unspecified().then_some(none).or(many(address)) {
                    reader.fail_key(&section, "address", format!("\"{text}\" {why}"));
                }
                (Some(address), Whereabouts::Fixed)
            }
            Err(_) if text == ANY => (None, Whereabouts::Learnt),
            Err(_) if is_host(text) => (None, Whereabouts::Named(text.to_owned())),
            Err(_) => {
                let what = format!(
                    "\"{text}\" is not an IP address, such as \"192.0.2.1\", a name such as \"gw.example.net\", or \
                     \"{ANY}\""
                );
                reader.fail_key(&section, "address", what);
                (None, Whereabouts::Fixed)
            }
        },
    };
    if plain && whereabouts != Whereabouts::Fixed {
        let what =
            "goes with auth = \"hmac\": with \"none\" anybody could move the address; write an IP address";
        reader.fail_key(&section, "address", what);
    }
    if whereabouts == Whereabouts::Learnt && section.item("port").is_some() {
        reader.fail_key(
            &section,
            "port",
            "goes with an address or a name: of \"any\" the port is learnt as well",
        );
    }
    if let (Some(peer), Some(own)) = (peer, own)
        && peer.is_ipv4() != own.is_ipv4()
    {
        reader.fail_key(&section, "listen-address", "is of another IP version than the peer's address");
    }
    let keep_alive = section.span("keep-alive");
    if keep_alive.is_some() && (plain || role == Some(Role::Sender)) {
        let what =
            "goes with auth = \"hmac\" and role = \"receiver\" or \"both\": questions tell where a sender is";
        reader.fail_key(&section, "keep-alive", what);
    }
    if keep_alive.is_some_and(|span| span < Span::from_secs(1)) {
        reader.fail_key(&section, "keep-alive", "must be at least 1s");
    }
    if keep_alive.is_some() && whereabouts == Whereabouts::Learnt {
        reader.fail_key(&section, "keep-alive", "needs an address or a name to send to");
    }
    let (key_file, answer_key_file) = (section.text("key-file"), section.text("answer-key-file"));
    if plain {
        for key in ["key-file", "answer-key-file"] {
            if section.item(key).is_some() {
                reader.fail_key(&section, key, "goes with auth = \"hmac\", not with \"none\"");
            }
        }
    } else {
        if key_file.is_none() && section.item("key-file").is_none() {
            let hint = "write the path of a file with a secret of at least 16 bytes, or auth = \"none\"";
            let path = format!("{}.key-file", section.path);
            reader.fail_with(&section.place, &path, "is missing", hint);
        }
        match (role, &answer_key_file) {
            (Some(Role::Both), None) => {
                let path = format!("{}.answer-key-file", section.path);
                let hint = "role = \"both\" needs a secret for each direction";
                reader.fail_with(&section.place, &path, "is missing", hint);
            }
            (Some(Role::Both), Some(file)) if Some(file) == key_file.as_ref() => {
                let what = "is the file of key-file; each direction needs a secret of its own";
                reader.fail_key(&section, "answer-key-file", what);
            }
            (Some(Role::Sender | Role::Receiver), Some(_)) => {
                reader.fail_key(&section, "answer-key-file", "goes with role = \"both\"");
            }
            _ => {}
        }
    }
    let port = |key| section.integer(key).and_then(|n| u16::try_from(n).ok());
    let any = |is_ipv4: bool| -> IpAddr { if is_ipv4 { [0; 4].into() } else { [0u16; 8].into() } };
    let is_ipv4 = peer.or(own).is_none_or(|address| address.is_ipv4());
    let nowhere = || (whereabouts != Whereabouts::Fixed).then(|| any(is_ipv4));
    let address = SocketAddr::new(peer.or_else(nowhere)?, port("port")?);
    let listen = SocketAddr::new(own.unwrap_or(any(is_ipv4)), port("listen-port")?);
    if whereabouts == Whereabouts::Fixed && address == listen {
        reader.fail_key(
            &section,
            "address",
            format!("{address} is the own address and port (listen-address)"),
        );
    }
    let auth = if plain { Auth::None } else { Auth::Hmac { key_file: key_file?, answer_key_file } };
    Some(Peer { address, whereabouts, listen, keep_alive, auth })
}

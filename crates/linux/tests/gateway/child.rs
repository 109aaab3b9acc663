//! What this program does when it is started again in a namespace.

use std::net::UdpSocket;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_linux::gateway;

use super::{faults, lab, probes};

/// The environment variable with the words.
pub(crate) const COMMAND: &str = "BANDMASTER_GATEWAY_TEST";

#[test]
fn child() {
    let Ok(words) = std::env::var(COMMAND) else { return };
    let words: Vec<&str> = words.split(' ').collect();
    match words.as_slice() {
        ["run", file] => {
            gateway::run(Path::new(file), false).unwrap_or_else(failed);
        }
        ["dry-run", file] => {
            gateway::run(Path::new(file), true).unwrap_or_else(failed);
        }
        ["restore", folder] => {
            let restored = gateway::restore(Path::new(folder), false).unwrap_or_else(failed);
            println!("{restored:?}");
        }
        ["restore", folder, "--force"] => {
            let restored = gateway::restore(Path::new(folder), true).unwrap_or_else(failed);
            println!("{restored:?}");
        }
        ["load", kbits, seconds] => load(number(kbits), number(seconds), lab::SINK, 5201),
        ["load", kbits, seconds, sink, port] => {
            load(number(kbits), number(seconds), sink, number(port) as u16);
        }
        ["stranger", words @ ..] => faults::stranger(words),
        ["impostor", folder] => probes::impostor(Path::new(folder)),
        ["asker", folder] => probes::asker(Path::new(folder)),
        other => panic!("unknown words {other:?}"),
    }
}

fn failed<T>(error: gateway::Error) -> T {
    panic!("{error}")
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// Five flows of `kbits` each, counted as IP with 1400 bytes of payload, to five ports of `sink` from `port` on.
fn load(kbits: u64, seconds: u64, sink: &str, port: u16) {
    const PAYLOAD: usize = 1400;
    let socket = UdpSocket::bind(if sink.contains(':') { "[::]:0" } else { "0.0.0.0:0" }).expect("a socket");
    let gap = Duration::from_nanos((PAYLOAD as u64 + 28) * 8_000_000 / kbits / 5);
    let begin = Instant::now();
    let mut count = 0u32;
    while begin.elapsed() < Duration::from_secs(seconds) {
        let due = gap * count;
        if let Some(wait) = due.checked_sub(begin.elapsed()) {
            thread::sleep(wait);
        }
        // Nobody has to listen.
        let _ = socket.send_to(&[0; PAYLOAD], (sink, port + (count % 5) as u16));
        count += 1;
    }
}

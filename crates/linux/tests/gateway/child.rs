//! What this program does when it is started again in a namespace.

use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_linux::{daemon, gateway};

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
        ["sink", seconds] => sink(number(seconds)),
        ["connections", seconds] => connections(number(seconds)),
        ["stranger", words @ ..] => faults::stranger(words),
        ["impostor", folder] => probes::impostor(Path::new(folder)),
        ["asker", folder] => probes::asker(Path::new(folder)),
        other => panic!("unknown words {other:?}"),
    }
}

fn failed<T>(error: daemon::Error) -> T {
    panic!("{error}")
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// Reads what comes over TCP to the five ports of the classes.
fn sink(seconds: u64) {
    for port in 5201..=5205 {
        let listener = TcpListener::bind((lab::SINK, port)).expect("a port");
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            }
        });
    }
    thread::sleep(Duration::from_secs(seconds));
}

/// A connection to each of these ports, which sends all that it can.
fn connections(seconds: u64) {
    for port in 5201..=5205 {
        let mut stream = TcpStream::connect((lab::SINK, port)).expect("connected");
        thread::spawn(move || while stream.write_all(&[0; 65536]).is_ok() {});
    }
    thread::sleep(Duration::from_secs(seconds));
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

//! False probes, from a process that has the peer's address.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::thread;
use std::time::Duration;

use bandmaster_core::scheme::er2bc::probe::{Body, Counters, Endpoint, Message, Seq};
use bandmaster_core::time::Time;
use bandmaster_linux::gateway::State;

use super::lab::{GATEWAY_1, GATEWAY_2, KEYED, Lab, key, receiver, sender};

const FALSE_PROBES: usize = 100_000;
const PORT: u16 = 4741;

pub(crate) fn socket(own: &str, peer: &str) -> UdpSocket {
    let socket = UdpSocket::bind((own, PORT)).expect("bound");
    socket.connect((peer, PORT)).expect("connected");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
    socket
}

/// Each kind of falsehood in turn, made of `real` messages: wrong tag, heard before, cut off, too long, no type at all.
fn falsify(real: &[Vec<u8>], i: usize) -> Vec<u8> {
    let mut bytes = real[i % real.len()].clone();
    let length = bytes.len();
    match i % 5 {
        0 => bytes[(i / 5) % length] ^= 1 << (i % 8),
        1 => {}
        2 => bytes.truncate(i / 5 % length),
        3 => bytes.resize(length + 1 + i / 5 % 1300, 0x55),
        _ => bytes[..2].copy_from_slice(&(3 + (i / 5 % 60_000) as u16).to_be_bytes()),
    }
    bytes
}

fn flood(socket: &UdpSocket, real: &[Vec<u8>]) {
    for i in 0..FALSE_PROBES {
        // What the network says of the one before is no matter.
        let _ = socket.send(&falsify(real, i));
        if i % 50 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Answers as the peer would, floods, and answers again.
pub(crate) fn impostor(folder: &Path) {
    let socket = socket(GATEWAY_2, GATEWAY_1);
    let (mut end, mut real) = (Endpoint::new(key(), 0), Vec::new());
    let mut answer = || -> Option<Vec<u8>> {
        let mut question = [0; 256];
        let length = socket.recv(&mut question).ok()?;
        let (question, ..) = end.open(&question[..length]).ok()?;
        let body = Body::Answer(Counters {
            packets: 0,
            bytes: 0,
            time: Time::from_nanos(u64::from(question.seq.get())),
        });
        let bytes = end.seal(Message { body, ..question }.encode());
        socket.send(&bytes).ok()?;
        Some(bytes)
    };
    while real.len() < 5 {
        real.extend(answer());
    }
    fs::write(folder.join("ready"), "").expect("written");
    while !folder.join("go").exists() {
        answer();
    }
    flood(&socket, &real);
    fs::write(folder.join("flooded"), "").expect("written");
    while !folder.join("again").exists() {
        thread::sleep(Duration::from_millis(20));
    }
    loop {
        answer();
    }
}

/// Asks as the peer would, floods, and asks again; writes how many answers came each time.
pub(crate) fn asker(folder: &Path) {
    let socket = socket(GATEWAY_1, GATEWAY_2);
    let (mut end, mut seq, mut real) = (Endpoint::new(key(), 1), Seq::new(0), Vec::new());
    // What the gateway refuses it says so, at most once a second: that is no answer.
    let answers = || {
        let (mut count, mut datagram) = (0, [0; 256]);
        while let Ok(length) = socket.recv(&mut datagram) {
            count += u32::from(!Message::starts_refusal(&datagram[..length]));
        }
        count
    };
    let mut ask = || {
        let bytes = end.seal(Message { seq, body: Body::Question }.encode());
        seq = seq.next();
        let _ = socket.send(&bytes);
        bytes
    };
    for _ in 0..5 {
        real.push(ask());
    }
    let before = answers();
    flood(&socket, &real);
    let during = answers();
    ask();
    let after = answers();
    fs::write(folder.join("counts"), format!("{before} {during} {after}")).expect("written");
}

fn wait_for(path: &Path) {
    for _ in 0..1200 {
        if path.exists() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{} did not come", path.display());
}

#[test]
fn false_answers_change_nothing() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let folder = lab.path("talk");
    fs::create_dir_all(&folder).expect("a folder");
    let impostor = lab.start("g2", &format!("impostor {}", folder.display()));
    let text = sender(KEYED, "").replace("\"3s\"", "\"60s\"");
    let gateway = lab.start("g1", &lab.gateway("g1", &text));
    wait_for(&folder.join("ready"));
    lab.until("g1", "answered", 5, |status| status.sender.as_ref().is_some_and(|s| s.answers >= 5));
    let classes = lab.inside("g1", "tc -j class show dev wan0");
    fs::write(folder.join("go"), "").expect("written");
    wait_for(&folder.join("flooded"));
    let asked = lab.status("g1").sender.expect("a sender").questions;
    let after = lab.until("g1", "asking on", 5, |status| {
        status.sender.as_ref().is_some_and(|sender| sender.questions >= asked + 2)
    });
    assert_eq!(lab.inside("g1", "tc -j class show dev wan0"), classes);
    let (sender, refused) = (after.sender.expect("a sender"), after.refused);
    assert_eq!((sender.estimate, sender.in_force, sender.state), (1_000_000, 1_000_000, State::Answering));
    println!("of {FALSE_PROBES} false answers refused: {refused:?}");
    assert!(
        refused.total() >= FALSE_PROBES as u64 / 2 && refused.total() <= FALSE_PROBES as u64,
        "{refused:?}"
    );
    assert!(refused.length > 0 && refused.kind > 0 && refused.tag > 0 && refused.replay > 0, "{refused:?}");
    fs::write(folder.join("again"), "").expect("written");
    let more = sender.answers + 2;
    lab.until("g1", "answered again", 10, |status| status.sender.as_ref().is_some_and(|s| s.answers >= more));
    assert!(gateway.stop());
    impostor.signal("-KILL");
    impostor.end();
}

#[test]
fn false_questions_are_not_answered() {
    let Some(lab) = Lab::build("1gbit") else { return };
    let folder = lab.path("talk");
    fs::create_dir_all(&folder).expect("a folder");
    let gateway = lab.start("g2", &lab.gateway("g2", &receiver(KEYED)));
    lab.until("g2", "up", 20, |status| !status.counting.is_empty());
    let asker = lab.start("g1", &format!("asker {}", folder.display()));
    assert!(asker.end(), "{}", lab.log("g1"));
    let counts = fs::read_to_string(folder.join("counts")).expect("counts");
    assert_eq!(counts, "5 0 1");
    let status = lab.status("g2");
    println!("of {FALSE_PROBES} false questions refused: {:?}", status.refused);
    assert!(status.refused.total() >= FALSE_PROBES as u64 / 2, "{:?}", status.refused);
    assert_eq!(status.receiver.expect("a receiver").questions, 6);
    assert!(gateway.stop());
}

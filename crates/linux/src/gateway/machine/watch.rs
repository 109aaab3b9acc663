//! Looks around once a second: checks that what the gateway put in place still stands, and looks for other faults. It mends
//! what it can.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, UdpSocket};

use bandmaster_core::scheme::er2bc::deployment::{Auth, Role, Sender};
use bandmaster_core::scheme::er2bc::mismatch::Cause;
use bandmaster_core::scheme::er2bc::probe::{ProbeError, Reason, VERSION};
use bandmaster_core::time::{Span, Time};

use super::super::faults::Fault;
use super::super::journal::Entry;
use super::{Endpoint, Machine, Received, device, install, rules, status};

/// After this long without a good message from the peer, bad ones count as the peer's own.
const NO_GOOD: Span = Span::from_secs(6);
/// A fault is reported from this many bad messages on.
const FEW_BAD: u32 = 3;
/// Bytes of messages and refusals without a tag, and with one.
const OTHER_FORMS: [usize; 4] = [4, 28, 20, 44];
/// What is not heard for so long is over.
const OVER: Span = Span::from_secs(10);
/// How often it is asked whether received packets are merged, which takes a program.
const MERGING: Span = Span::from_secs(5);
/// Over so many looks around, a second each, it is summed up what leaves by no class.
const LOOKS: usize = 10;
/// At most one refusal in that time.
const REFUSALS: Span = Span::from_millis(900);

/// What was seen last.
#[derive(Default)]
pub(super) struct Watch {
    /// The kernel's number of its rules, when the table was as it should be.
    generation: Option<u32>,
    /// The table as it should be.
    table: Option<String>,
    /// The interface's number.
    index: Option<i32>,
    /// When it was asked last whether received packets are merged.
    merging: Option<Time>,
    /// The journal has that they are not.
    merging_written: bool,
    /// Own address towards the peer; the first one is that by which the peer knows this gateway.
    known_as: Option<IpAddr>,
    /// Bytes that have left by no class, and by classes, second for second.
    left: VecDeque<(u64, u64)>,
    unclassified: Option<Received>,
    /// Messages that answer, and questions.
    answers: Heard,
    questions: Heard,
    /// When a question was refused last.
    refused: Option<Time>,
    /// The peer's version, by a message of it with a good tag, and when that came.
    version: Option<(u8, Time)>,
}

/// What came from the peer's address in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// The last good message.
    good: Option<Time>,
    /// Since then: with a false tag or none, or with one that should have none; and the last of them.
    false_tags: u32,
    false_tag: Option<Time>,
    /// Since then: good ones but for a number of an earlier epoch.
    old: u32,
    last_old: Option<Time>,
}

impl Heard {
    fn is_quiet(&self, now: Time) -> bool {
        self.good.is_none_or(|good| now.since(good) >= NO_GOOD)
    }

    fn has_other_key(&self, now: Time) -> bool {
        let recent = self.false_tag.is_some_and(|at| now.since(at) < OVER);
        recent && self.false_tags >= FEW_BAD && self.is_quiet(now)
    }

    fn is_behind(&self, now: Time) -> bool {
        let recent = self.last_old.is_some_and(|at| now.since(at) < OVER);
        recent && self.old >= FEW_BAD && self.is_quiet(now)
    }

    fn note(&mut self, now: Time, datagram: &[u8], error: ProbeError) {
        match error {
            // What is no message at all says nothing of the peer.
            ProbeError::Length(length)
                if !OTHER_FORMS.contains(&length) || datagram.first() != Some(&VERSION) => {}
            ProbeError::Tag | ProbeError::Length(_) => {
                self.false_tags = self.false_tags.saturating_add(1);
                self.false_tag = Some(now);
            }
            ProbeError::Replay { .. } => {
                self.old = self.old.saturating_add(1);
                self.last_old = Some(now);
            }
            ProbeError::Type(_) | ProbeError::Version(_) => {}
        }
    }
}

impl Machine {
    /// Looks for faults, and mends those that it can.
    pub(super) fn look_around(&mut self) {
        self.look_at_interface();
        self.look_at_peer();
        if self.state.is_some() {
            self.look_at_rules();
            self.look_at_shaper();
            self.look_at_unclassified();
        }
        let now = self.clock.now();
        status::lock(&self.shared).end_mended(now);
    }

    pub(super) fn begin_fault(&self, kind: Fault, cause: impl Into<String>) {
        status::lock(&self.shared).begin_fault(self.clock.now(), kind, cause.into());
    }

    pub(super) fn mend_fault(&self, kind: Fault) {
        status::lock(&self.shared).mend_fault(self.clock.now(), kind);
    }

    pub(super) fn end_fault(&self, kind: Fault) {
        status::lock(&self.shared).end_fault(self.clock.now(), kind);
    }

    // ------------------------------------------------------------------------------------------------ interface

    fn look_at_interface(&mut self) {
        let interface = self.loaded.deployment.interface.clone();
        let link = match device::link(&interface) {
            Ok(Some(link)) => link,
            Ok(None) => {
                self.watch.index = None;
                return self.begin_fault(Fault::NoInterface, self.no_interface());
            }
            Err(e) => return self.complain(&e.to_string()),
        };
        let before = self.watch.index.replace(link.index);
        match before {
            Some(before) if before != link.index => {
                self.begin_fault(
                    Fault::NoInterface,
                    format!(
                        "interface {interface} was replaced by another of the same name; the gateway continues there. Find \
                         what recreates it"
                    ),
                );
                self.mend_fault(Fault::NoInterface);
            }
            _ => self.end_or_mend_interface(),
        }
        if before != Some(link.index) {
            self.watch.merging = None;
        }
        let down = match (link.is_up, link.has_carrier) {
            (false, _) => Some(format!("interface {interface} is down: `ip link set dev {interface} up`")),
            (true, false) => {
                Some(format!("interface {interface} has no carrier: look at its cable, or at the other end"))
            }
            (true, true) => None,
        };
        self.set_fault(Fault::LinkDown, down);
        let bypass = link.bypass(&interface);
        if bypass.is_some() {
            self.sent.forget();
        }
        self.set_fault(Fault::Enslaved, bypass);
        if self.state.is_some() && self.loaded.deployment.role != Role::Sender {
            self.look_at_merging(&interface);
        }
        self.look_at_address();
    }

    /// An interface that was seen to be away ends the fault; one that was exchanged between two looks is shown for a while.
    fn end_or_mend_interface(&self) {
        let was_mended = {
            let status = status::lock(&self.shared);
            status.is_mended(Fault::NoInterface)
        };
        if !was_mended {
            self.end_fault(Fault::NoInterface);
        }
    }

    fn set_fault(&self, kind: Fault, cause: Option<String>) {
        match cause {
            Some(cause) => self.begin_fault(kind, cause),
            None => self.end_fault(kind),
        }
    }

    /// Merging may be on again: the device was recreated, or a person switched it on.
    fn look_at_merging(&mut self, interface: &str) {
        let now = self.clock.now();
        if self.watch.merging.is_some_and(|at| now.since(at) < MERGING) {
            return;
        }
        self.watch.merging = Some(now);
        if device::merges_received(interface) != Some(true) {
            return;
        }
        self.begin_fault(
            Fault::MergesReceived,
            format!(
                "generic receive offload of {interface} is on again: merged packets are counted as one. The gateway switches it \
                 off; find what switches it on (a new device, ethtool, udev)"
            ),
        );
        let written = std::mem::replace(&mut self.watch.merging_written, true);
        let journal = self.state.as_ref().filter(|_| !written).map(|state| {
            if let Some(claim) = &state.claim {
                claim.note_merged(true);
            }
            state.resume()?.write(&Entry::MergingOff)
        });
        self.watch.merging_written = journal.as_ref().is_none_or(Result::is_ok);
        let done = journal.unwrap_or(Ok(())).and_then(|()| device::set_merging(interface, false));
        match done {
            Ok(()) => {
                // Counts so far are wrong: counting restarts, and the sender leaves the round out.
                self.reload_rules();
                self.mend_fault(Fault::MergesReceived);
            }
            Err(e) => self.complain(&e.to_string()),
        }
    }

    /// A socket keeps the address from its creation. When the machine loses that address, the socket sends nothing, so another
    /// is made. The peer takes messages only from the address in its file.
    fn look_at_address(&mut self) {
        if !self.peer.is_fixed() {
            // A socket that is not connected has no address of its own, and the peer learns where this gateway is.
            return;
        }
        let Ok(own) = self.socket.local_addr().map(|own| own.ip()) else { return };
        let known_as = *self.watch.known_as.get_or_insert(own);
        let is_known = has_address(known_as);
        if own == known_as && is_known {
            return self.end_fault(Fault::AddressChanged);
        }
        if !is_known {
            let interface = &self.loaded.deployment.interface;
            self.begin_fault(
                Fault::AddressChanged,
                format!(
                    "the address {known_as}, by which the peer knows this gateway, is not the machine's any more: give it back \
                     (ip addr add {known_as}/LENGTH dev {interface}), or write the new one as `address` of [peer] at the peer{}",
                    if self.loaded.deployment.listen.ip().is_unspecified() { "" } else { " and as listen-address here" }
                ),
            );
            if has_address(own) && !own.is_loopback() {
                return;
            }
        }
        let nowhere = UdpSocket::bind((if own.is_ipv4() { "127.0.0.1" } else { "::1" }, 0));
        let Ok(nowhere) = nowhere.and_then(|socket| socket.set_nonblocking(true).map(|()| socket)) else {
            return;
        };
        // The port is free when the old socket is gone. Of several addresses the kernel might take another one.
        drop(std::mem::replace(&mut self.socket, nowhere));
        if let Ok(socket) = super::open(&self.loaded.deployment, is_known.then_some(known_as)) {
            self.socket = socket;
        }
    }

    // ------------------------------------------------------------------------------------------------ counts

    /// The role compares the counts of both ends.
    pub(super) fn note_mismatch(&self, cause: Option<Cause>) {
        let Some(cause) = cause else { return self.end_fault(Fault::Mismatch) };
        let what = match cause {
            Cause::Nothing => {
                "the peer counts nothing of what this gateway sends. Addresses are translated (NAT) on the way, or its [[data]] \
                 names others: write the sources that arrive there"
            }
            Cause::Unsent => {
                "the peer counts data that no class has sent. Its [[data]] fits traffic that leaves past the classes here, or \
                 comes from elsewhere: let [[data]] and the classes name the same packets"
            }
            Cause::More => {
                "the peer counts more than the classes send. Its [[data]] fits traffic that leaves past the classes here, or \
                 comes from elsewhere: let [[data]] and the classes name the same packets"
            }
            Cause::Merged => {
                "the peer counts fewer packets than arrive: they are merged on the way or there. Switch generic receive offload \
                 off (ethtool -K DEVICE gro off) wherever they pass"
            }
            Cause::Bytes => {
                "the peer counts packets of another size: a tunnel, or headers, between the two counters. Name the tunnel device \
                 as interface on both sides"
            }
            Cause::Share => {
                "the peer does not count a share of what this gateway sends, and probes are not lost. Its [[data]] lacks a source, \
                 or an address family (IPv6), or some data takes another way: add the rule there"
            }
        };
        self.begin_fault(Fault::Mismatch, format!("{what}. The safe rate is in force"));
    }

    /// Packets of no class leave unshaped and uncounted.
    fn look_at_unclassified(&mut self) {
        let sender = self.loaded.deployment.sender.as_ref();
        let takes_all = |sender: &&Sender| sender.classes.last().is_none_or(|class| class.matches.is_empty());
        let Some(sender) = sender.filter(|sender| !takes_all(sender)) else {
            // A reload may have added a class that takes all remaining packets.
            self.watch.left.clear();
            return self.end_fault(Fault::Unclassified);
        };
        let limit = sender.unclassified;
        let needs: u64 = sender.classes.iter().map(|class| class.flow.need.bits_per_sec()).sum();
        let table = self.table();
        let reader = self.watch.unclassified.get_or_insert_with(|| Received::new(table));
        // Without the rules there is another fault.
        let Ok(other) = reader.read(rules::UNCLASSIFIED) else { return };
        let left = &mut self.watch.left;
        let passed = self.sent.passed().bytes;
        if left.back().is_some_and(|last| other.bytes < last.0 || passed < last.1) {
            left.clear();
        }
        left.push_back((other.bytes, passed));
        if left.len() > LOOKS + 1 {
            left.pop_front();
        }
        let (Some(first), true) = (left.front(), left.len() > LOOKS / 2) else { return };
        let seconds = (left.len() - 1) as f64;
        let (other, classes) = ((other.bytes - first.0) as f64, (passed - first.1) as f64);
        // A person at a keyboard is no traffic that matters.
        let all = (other + classes).max(needs as f64 / 8.0 * seconds);
        let cause = (other > limit * all).then(|| {
            format!(
                "{:.0} kbit/s, {:.0} % of what leaves by {}, fits no class and leaves unshaped, ahead of all classes. Give it a \
                 class: the last one takes all that is left when it has no `match`",
                other * 8e-3 / seconds,
                100.0 * other / (other + classes),
                self.loaded.deployment.interface
            )
        });
        self.set_fault(Fault::Unclassified, cause);
    }

    fn no_interface(&self) -> String {
        let interface = &self.loaded.deployment.interface;
        format!("there is no interface {interface}; the gateway resumes when it comes back")
    }

    // ------------------------------------------------------------------------------------------------ shaper

    /// Whether the shaper is unchanged, and is the one that this gateway made.
    fn look_at_shaper(&mut self) {
        let interface = &self.loaded.deployment.interface;
        let (Some(htb), Some(state)) = (&mut self.htb, &self.state) else { return };
        // A failed query is ignored; if the shaper is gone, its next use reports it.
        if install::has_ours(state, interface) == Ok(false) {
            let why = format!("the shaper of {interface} is not the one that this gateway made");
            return self.lose(&why);
        }
        match htb.difference() {
            Ok(None) => {}
            Ok(Some(why)) => self.lose(&why),
            Err(e) if device::index(interface).is_err() => self.lose(&e.to_string()),
            // The kernel did not answer: that tells nothing of the shaper.
            Err(e) => self.complain(&e.to_string()),
        }
        self.return_interface();
    }

    /// The shaper is not there; the interface may have gone with it.
    pub(super) fn note_shaper_gone(&self, why: &str) {
        let interface = &self.loaded.deployment.interface;
        if device::index(interface).is_err() {
            return self.begin_fault(Fault::NoInterface, self.no_interface());
        }
        let why = why.trim_start_matches("error: ");
        self.begin_fault(
            Fault::ShaperGone,
            format!(
                "{why}. Somebody has removed or changed the queue discipline of {interface}; the shaper is put back as soon \
                 as the kernel takes it. Find what changes it (`tc monitor`)"
            ),
        );
    }

    pub(super) fn note_shaper_back(&mut self) {
        self.sent.forget();
        self.mend_fault(Fault::ShaperGone);
    }

    // ------------------------------------------------------------------------------------------------ peer

    /// A good message arrived.
    pub(super) fn note_good(&mut self, is_question: bool) {
        let now = self.clock.now();
        *self.heard(is_question) = Heard { good: Some(now), ..Heard::default() };
        self.watch.version = None;
        if let Ok(own) = self.socket.local_addr() {
            // A good message reached this address, so the peer has it.
            self.watch.known_as = Some(own.ip());
        }
        let mut status = status::lock(&self.shared);
        for kind in [Fault::KeysDiffer, Fault::OtherVersion] {
            status.end_fault(now, kind);
        }
        // Perhaps it was mended a moment ago: keep it visible.
        status.mend_fault(now, Fault::RefusedAsOld);
    }

    fn heard(&mut self, is_question: bool) -> &mut Heard {
        if is_question { &mut self.watch.questions } else { &mut self.watch.answers }
    }

    /// A message was refused: says so to the peer, when it is a question, and not too often.
    pub(super) fn note_bad(&mut self, datagram: &[u8], error: ProbeError, is_question: bool) {
        let now = self.clock.now();
        self.heard(is_question).note(now, datagram, error);
        if let ProbeError::Version(version) = error {
            self.watch.version = Some((version, now));
        }
        if !is_question || self.watch.refused.is_some_and(|at| now.since(at) < REFUSALS) {
            return;
        }
        // False tags may be somebody's while the peer's are good: they are refused once they are taken for the peer's.
        let is_unproven = matches!(error, ProbeError::Tag | ProbeError::Length(_));
        if is_unproven && !self.watch.questions.has_other_key(now) {
            return;
        }
        if let Some(refusal) = self.answers.refuse(datagram, error) {
            self.watch.refused = Some(now);
            // It goes where a question may have come from in vain; the next one is refused again.
            let _ = self.transmit(&refusal);
        }
    }

    /// The peer has refused a question.
    pub(super) fn heed(&mut self, datagram: &[u8]) {
        let now = self.clock.now();
        let refusal = match self.asks.heed(datagram) {
            Ok(refusal) => refusal,
            Err(error) => {
                status::lock(&self.shared).refused.count(error);
                return self.heard(false).note(now, datagram, error);
            }
        };
        let (own, seq) = (self.asks.told_epoch(), refusal.seq.get());
        if !self.asked.iter().any(|(_, asked)| *asked == seq) {
            status::lock(&self.shared).refused.unasked += 1;
            return;
        }
        match refusal.reason {
            // The refusal has our own tag, so somebody changed the question in flight.
            Reason::Tag if matches!(self.loaded.deployment.auth, Auth::Hmac { .. }) => {}
            Reason::Tag => self.heard(false).note(now, datagram, ProbeError::Tag),
            Reason::Version(version) => self.watch.version = Some((version, now)),
            Reason::Old { highest } if highest >= own => self.go_above(highest),
            // Of an earlier life.
            Reason::Old { .. } => {}
        }
        self.look_at_peer();
    }

    /// The peer has heard questions of a higher epoch: continue above it.
    fn go_above(&mut self, highest: u32) {
        let why = format!(
            "the peer takes this gateway's questions for old ones: it has heard epoch {highest}, and they are of epoch {}. \
             The state directory was lost and the clock of the day is behind",
            self.epoch
        );
        let Some(next) = highest.checked_add(1) else {
            let what =
                format!("{why}; there is no higher one: restart the gateway at the peer, which forgets it");
            return self.begin_fault(Fault::RefusedAsOld, what);
        };
        let what = format!("{why}; they go on with epoch {next}. Set the clock, keep the state directory");
        self.begin_fault(Fault::RefusedAsOld, what);
        self.epoch = next;
        if let Some(Err(error)) = self.keep_epoch() {
            self.failed = Some(error);
        }
        self.asks = Endpoint::new(self.loaded.auth.clone(), next);
        self.asked.clear();
        self.open = None;
    }

    fn look_at_peer(&mut self) {
        let now = self.clock.now();
        let Watch { answers, questions, version, .. } = self.watch;
        let peer = self.peer.to_string();
        let (asks, both) = (answers.has_other_key(now), self.loaded.deployment.sender.is_some());
        if asks || questions.has_other_key(now) {
            let (what, file) = match asks {
                true => ("answers arrive", "key-file"),
                false if both => ("questions arrive", "answer-key-file"),
                false => ("questions arrive", "key-file"),
            };
            self.begin_fault(
                Fault::KeysDiffer,
                format!(
                    "{what} from {peer} whose tag is not that of this gateway's secret: the keys differ, or one end has \
                     auth = \"none\". Put the same {file} on both gateways and restart them"
                ),
            );
        } else {
            self.end_fault(Fault::KeysDiffer);
        }
        if questions.is_behind(now) {
            self.begin_fault(
                Fault::RefusedAsOld,
                format!(
                    "questions of {peer} have numbers below those heard before: it has lost its state directory and its clock \
                     is behind, or somebody repeats recorded ones. This gateway tells it the highest number heard, and the \
                     peer goes on above that; when the peer's version is too old to do so, set its clock"
                ),
            );
            self.mend_fault(Fault::RefusedAsOld);
        }
        match version.filter(|(_, at)| now.since(*at) < OVER) {
            Some((theirs, _)) => {
                let (old, at) =
                    if theirs > VERSION { ("this gateway", "here") } else { ("the peer", "there") };
                self.begin_fault(
                    Fault::OtherVersion,
                    format!(
                        "{peer} speaks version {theirs} of the messages, this gateway version {VERSION}: {old} is too old. \
                         Update bandmaster {at}"
                    ),
                );
            }
            None => self.end_fault(Fault::OtherVersion),
        }
    }

    // ------------------------------------------------------------------------------------------------ rules

    /// The kernel tells by one number whether any rule was changed; only then the table is read.
    fn look_at_rules(&mut self) {
        let generation = rules::generation().ok();
        if generation.is_some() && generation == self.watch.generation {
            return;
        }
        match (rules::standing(&self.table()), &self.watch.table) {
            (Ok(Some(table)), None) => self.watch.table = Some(table),
            (Ok(Some(table)), Some(good)) if table == *good => {}
            (Ok(Some(_)), Some(_)) => return self.mend_rules("rules of it were changed"),
            (Ok(None), _) => return self.mend_rules("it is not there"),
            (Err(e), _) => return self.complain(&e.to_string()),
        }
        self.watch.generation = generation;
    }

    /// The table is not as it should be: it comes back.
    pub(super) fn mend_rules(&mut self, why: &str) {
        let why = why.trim_start_matches("error: ");
        let table = format!("table inet {}", self.table());
        self.begin_fault(
            Fault::ClassifierGone,
            format!(
                "nftables, {table}: {why}. Somebody has flushed or changed it (`nft flush ruleset`, a firewall that \
                 loads its own); it is loaded again. Let that program leave {table} alone"
            ),
        );
        if self.reload_rules() {
            self.mend_fault(Fault::ClassifierGone);
        }
    }

    /// Counters begin at nothing, here and, as a sender, for what has left past the classes.
    fn reload_rules(&mut self) -> bool {
        match rules::replace(&self.table(), &rules::ruleset(&self.loaded.deployment)) {
            Ok(()) => {
                self.received = Received::new(self.table());
                self.sent.forget();
                self.forget_rules();
                true
            }
            Err(e) => {
                self.complain(&e.to_string());
                false
            }
        }
    }

    /// Name of the gateway's table.
    fn table(&self) -> String {
        rules::table(&self.loaded.deployment.name)
    }

    /// The table was replaced.
    pub(super) fn forget_rules(&mut self) {
        // Flows are counted by its sets, for the classes of before.
        self.counting = None;
        (self.watch.generation, self.watch.table) = (None, rules::standing(&self.table()).ok().flatten());
    }
}

/// Whether an address is one of this machine's.
fn has_address(address: IpAddr) -> bool {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => true,
        Err(e) => e.kind() != io::ErrorKind::AddrNotAvailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three false tags, and none good for 6 s; what is no message does not count, nor what was long ago.
    #[test]
    fn keys_differ_when_only_false_tags_come() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let question = [VERSION, 1, 0, 0];
        let mut heard = Heard::default();
        for seconds in 0..3 {
            assert!(!heard.has_other_key(at(seconds)));
            heard.note(at(seconds), &question, ProbeError::Tag);
        }
        assert!(heard.has_other_key(at(3)) && !heard.has_other_key(at(12)));
        let mut heard = Heard { good: Some(at(0)), ..Heard::default() };
        for seconds in 1..6 {
            heard.note(at(seconds), &question, ProbeError::Length(4));
            assert!(!heard.has_other_key(at(seconds)), "the peer was heard a moment ago");
        }
        assert!(heard.has_other_key(at(6)));
        let mut heard = Heard::default();
        for seconds in 0..20 {
            heard.note(at(seconds), &[VERSION; 50], ProbeError::Length(50));
            heard.note(at(seconds), b"GET ", ProbeError::Length(4));
            heard.note(at(seconds), &[VERSION, 9], ProbeError::Type(9));
        }
        assert!(!heard.has_other_key(at(20)));
    }

    /// The remedy of the fault is a class that takes all that is left: with it in the file, the fault is over.
    #[test]
    fn nothing_is_unclassified_when_a_class_takes_all_that_is_left() {
        let mut machine =
            Machine::new(super::super::dry::loaded(), None, true).unwrap_or_else(|e| panic!("{e}"));
        machine.begin_fault(Fault::Unclassified, "of the file before");
        machine.look_at_unclassified();
        assert!(!status::lock(&machine.shared).has_fault(Fault::Unclassified));
    }
}

//! Both ends of an enrolment, over the loopback.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bandmaster_core::controller::{self, Deployment, ENROLLED, Host};
use bandmaster_core::file::Files as Beside;
use nix::fcntl::{Flock, FlockArg};
use rustls::pki_types::CertificateDer;

use super::client::{self, Certificate, Files};
use super::ledger::{Entry, Ledger, Waiting};
use super::server::{Desk, Questions, Roster, lock};
use super::tls::{Authority, Pair};
use super::*;
use crate::daemon::clock::seconds_of_day;

#[derive(Debug)]
struct Nothing;

impl Beside for Nothing {
    fn read(&self, _name: &str) -> Result<String, String> {
        Err("there are no files here".to_owned())
    }
}

fn deployment() -> Deployment {
    let text =
        "version = 1\nscheme = \"opentcp\"\nhosts-file = \"hosts\"\n[role]\npolicies = [\"few-flows\"]\n";
    controller::parse("c.toml", text, &Nothing).expect("valid")
}

/// A controller's end in a folder of its own, which goes with it.
struct Place {
    folder: PathBuf,
    at: SocketAddr,
    desk: Arc<Desk>,
    ledger: Arc<Mutex<Ledger>>,
    authority: Digest,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("bandmaster-enrol-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("made");
        let ledger = Arc::new(Mutex::new(Ledger::of(&folder).expect("a ledger")));
        let authority = Authority::of(&folder).expect("an authority");
        let public = authority.public();
        let hosts_file = folder.join("hosts");
        let hosts = "1 web-1 enrolled\n2 web-2 enrolled\n3 web-3 enrolled\n";
        fs::write(&hosts_file, hosts).expect("written");
        fs::set_permissions(&hosts_file, fs::Permissions::from_mode(0o600)).expect("set");
        let read = Arc::new(Mutex::new(Roster::new(deployment(), hosts_file, &[])));
        let agent = |_: &Deployment, number: u32| format!("number = {number}\n");
        let desk = Arc::new(Desk::new(Arc::clone(&ledger), authority, read, agent));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        Arc::clone(&desk).serve(listener).expect("served");
        Self { folder, at, desk, ledger, authority: public }
    }

    /// A token for host `number`, valid until that second.
    fn token_until(&self, number: u32, until: u32) -> Token {
        let token = Token::new(number, self.authority).expect("random");
        let waiting = Waiting { digest: token.digest(), until };
        let name = format!("web-{number}");
        lock(&self.ledger)
            .change::<Error>(|ledger| {
                let known = ledger.entry(number).cloned();
                let known = known.unwrap_or_else(|| Entry { number, name, ..Entry::default() });
                Ok(Entry { token: Some(waiting), ..known })
            })
            .expect("written");
        token
    }

    fn token(&self, number: u32) -> Token {
        self.token_until(number, seconds_of_day() + 100)
    }

    /// What a host with files called `host` hears when it enrols; nothing: it has.
    fn enroll(&self, host: &str, token: &Token) -> String {
        let [agent, key, certificate] = self.files(host);
        let files = Files { agent: Some(&agent), key: &key, certificate: &certificate };
        let said = client::enroll(self.at, token, &files, |text| Ok(text.to_owned()));
        said.err().map(|error| error.to_string()).unwrap_or_default()
    }

    fn renew(&self, host: &str) -> String {
        let [_, key, certificate] = self.files(host);
        let files = Files { agent: None, key: &key, certificate: &certificate };
        client::renew(self.at, &files).err().map(|error| error.to_string()).unwrap_or_default()
    }

    fn files(&self, host: &str) -> [PathBuf; 3] {
        ["toml", "key", "certificate"].map(|kind| self.folder.join(format!("{host}.{kind}")))
    }

    fn secret(&self, host: &str) -> String {
        fs::read_to_string(&self.files(host)[1]).expect("a secret").trim().to_owned()
    }

    /// What the controller has of host `number`.
    fn entry(&self, number: u32) -> Entry {
        lock(&self.ledger).entry(number).cloned().expect("an entry")
    }

    fn until(&self, what: &str, holds: impl Fn(Questions) -> bool) {
        let begin = Instant::now();
        while !holds(self.desk.questions()) {
            assert!(begin.elapsed() < Duration::from_secs(20), "{what}: {:?}", self.desk.questions());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

#[test]
fn a_token_is_read_as_it_was_written_or_not_at_all() {
    let token = Token::new(7, digest(b"authority")).expect("random");
    let text = token.to_string();
    assert_eq!(text.parse(), Ok(token.clone()));
    for at in 0..text.len() {
        assert!(text[..at].parse::<Token>().is_err(), "cut off at {at}");
        let mut other = text.clone().into_bytes();
        other[at] = if other[at] == b'0' { b'1' } else { b'0' };
        assert!(String::from_utf8_lossy(&other).parse::<Token>().is_err(), "changed at {at}");
    }
    assert_eq!(format!("{token:?}"), "Token(7)");
    assert!((text + "0").parse::<Token>().is_err());
}

#[test]
fn a_host_enrols_once_and_renews() {
    let place = Place::new("once");
    let token = place.token(1);
    assert_eq!(place.enroll("a", &token), "");
    let [agent, key, certificate] = place.files("a");
    assert_eq!(fs::read_to_string(&agent).expect("there"), "number = 1\n");
    assert_eq!([mode(&key), mode(&certificate), mode(&place.folder.join("authority"))], [0o600; 3]);
    let first = place.secret("a");
    assert_eq!(place.entry(1).secret.as_deref(), Some(first.as_str()));
    assert!(place.enroll("b", &token).contains("refused: the token was used"));
    assert!(place.files("b").iter().all(|path| !path.exists()), "nothing is left of what failed");

    assert_eq!(place.renew("a"), "");
    let second = place.secret("a");
    assert!(second != first && place.entry(1).secret.as_deref() == Some(second.as_str()));
    // The answer to the next one was lost: the host has written down what it asked for, and asks again.
    let lost = hex(&[7; 32]);
    fs::write(place.folder.join("a.key.new"), &lost).expect("written");
    fs::set_permissions(place.folder.join("a.key.new"), fs::Permissions::from_mode(0o600)).expect("set");
    assert_eq!(place.renew("a"), "");
    assert_eq!((place.secret("a"), place.entry(1).secret), (lost.clone(), Some(lost)));
    let Questions { enrolled, renewed, token, .. } = place.desk.questions();
    assert_eq!((enrolled, renewed, token), (1, 2, 1));

    // The ledger has neither the token nor a private key.
    let ledger = fs::read_to_string(place.folder.join("enrolment")).expect("there");
    let kept: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&certificate).expect("there")).expect("JSON");
    assert!(!ledger.contains(kept["key"].as_str().expect("a key")));
    // Another life of the controller knows the same.
    let again = Ledger::of(&place.folder).expect("read");
    assert!(again.entry(1) == Some(&place.entry(1)));
}

/// Passes one connection on to the controller, and none of its answer once it has one: where it is.
fn loses_the_answer(
    place: &Place,
    answers: fn(Questions) -> u64,
) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (at, controller, desk) = (listener.local_addr().expect("bound"), place.at, Arc::clone(&place.desk));
    let before = answers(desk.questions());
    let passes = std::thread::spawn(move || {
        let (mut host, _) = listener.accept().expect("asked");
        let mut there = TcpStream::connect(controller).expect("taken");
        let (mut from, mut to) = (host.try_clone().expect("a copy"), there.try_clone().expect("a copy"));
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = there.read(&mut part) {
            if answers(desk.questions()) > before {
                break;
            }
            host.write_all(&part[..count]).expect("passed on");
        }
        let _ = host.shutdown(std::net::Shutdown::Both);
        let _ = there.shutdown(std::net::Shutdown::Both);
    });
    (at, passes)
}

#[test]
fn a_lost_answer_locks_nobody_out() {
    let mut place = Place::new("lost");
    let controller = place.at;
    let token = place.token(1);
    let passes;
    (place.at, passes) = loses_the_answer(&place, |questions| questions.enrolled);
    let said = place.enroll("a", &token);
    assert!(said.contains("its answer is cut off") && !said.contains("refused"), "{said}");
    passes.join().expect("ended");
    place.at = controller;
    assert!(place.files("a").iter().all(|path| !path.exists()));
    assert!(place.enroll("a", &token).contains("refused: the token was used"));
    assert_eq!(place.enroll("a", &place.token(1)), "");

    let first = place.secret("a");
    let passes;
    (place.at, passes) = loses_the_answer(&place, |questions| questions.renewed);
    let said = place.renew("a");
    assert!(
        said.contains("its answer is cut off, or none; it may have the new secret already: renew again"),
        "{said}"
    );
    passes.join().expect("ended");
    place.at = controller;
    let lost = place.entry(1).secret.expect("a secret");
    assert_eq!((place.secret("a"), lost == first), (first, false), "the host goes on with the old one");
    assert_eq!(
        (place.renew("a"), place.secret("a"), place.entry(1).secret),
        (String::new(), lost.clone(), Some(lost))
    );
    // What is refused has changed nothing, whatever it says: there is nothing to repeat.
    fs::write(place.folder.join("hosts"), "").expect("written");
    let said = place.renew("a");
    assert!(said.contains("refused: ") && !said.contains("renew again"), "{said}");
}

/// Another host has the number of one that enrolled: it has neither its secret nor its revocation.
#[test]
fn a_number_that_is_used_again_brings_nothing_with_it() {
    let place = Place::new("number");
    assert_eq!(place.enroll("a", &place.token(1)), "");
    let host = |name: &str| Host { number: 1, name: name.to_owned(), secret: ENROLLED.to_owned() };
    let mut ledger = Ledger::of(&place.folder).expect("read");
    let revoked = digest(ledger.secret(&host("web-1")).expect("a secret").as_bytes());
    assert!(ledger.secret(&host("other")).is_none());
    let entry = Entry { revoked: Some(revoked), ..place.entry(1) };
    ledger.change::<Error>(|_| Ok(entry)).expect("written");
    assert!(ledger.is_revoked(&host("web-1")) && !ledger.is_revoked(&host("other")));
}

#[test]
fn renewals_at_a_time_take_turns() {
    let place = Place::new("turns");
    assert_eq!(place.enroll("a", &place.token(1)), "");
    let said: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| place.renew("a"))).collect();
        all.into_iter().map(|one| one.join().expect("ended")).collect()
    });
    // The controller may refuse a second one so soon.
    assert!(said.iter().any(String::is_empty), "{said:?}");
    assert!(said.iter().all(|said| said.is_empty() || said.contains("refused")), "{said:?}");
    assert!(Certificate::read(&place.files("a")[2]).is_ok());
    assert_eq!(place.entry(1).secret, Some(place.secret("a")));
}

/// A byte now and then is no answer.
#[test]
fn a_slow_controller_is_left_in_time() {
    let place = Place::new("slow");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("asked");
        // The head of a record of TLS, and its content.
        for byte in [0x16, 3, 3, 0x3f, 0].into_iter().chain([0; 100]) {
            std::thread::sleep(Duration::from_millis(100));
            if stream.write_all(&[byte]).is_err() {
                break;
            }
        }
    });
    let begin = Instant::now();
    let said = client::wait_for(at, place.authority, Duration::from_secs(1));
    assert!(said.contains("does not answer in time"), "{said}");
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    answers.join().expect("ended");
}

/// A daemon that could read a secret can read the next one.
#[test]
fn a_file_that_is_replaced_stays_its_owners() {
    use std::os::unix::fs::{MetadataExt, chown};
    const OTHER: u32 = 65_533;
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = Place::new("owner");
    let [_, key, certificate] = place.files("a");
    fs::write(&key, "old").expect("written");
    chown(&key, Some(0), Some(OTHER)).expect("given away");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).expect("set");
    let is_as_before = || {
        let meta = fs::metadata(&key).expect("there");
        (meta.uid(), meta.gid(), mode(&key), mode(&certificate)) == (0, OTHER, 0o640, 0o600)
    };
    assert_eq!(place.enroll("a", &place.token(1)), "");
    assert!(is_as_before(), "enrolled");
    assert_eq!(place.renew("a"), "");
    assert!(is_as_before(), "renewed");
}

/// The folder's owner replaces the file that root's command waits for with a link to a file of root.
#[test]
fn a_link_is_not_given_away() {
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    const OTHER: u32 = 65_533;
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = Place::new("link");
    let folder = place.folder.join("theirs");
    fs::create_dir(&folder).expect("made");
    chown(&folder, Some(OTHER), Some(OTHER)).expect("given away");
    let (victim, authority) = (place.folder.join("victim"), folder.join("authority"));
    fs::write(&victim, "").expect("written");
    let held = fs::File::create(&authority).expect("made");
    held.lock().expect("held");
    let of = folder.clone();
    let command = std::thread::spawn(move || Authority::of(&of).map(drop));
    std::thread::sleep(Duration::from_millis(200));
    fs::remove_file(&authority).expect("removed");
    symlink(&victim, &authority).expect("linked");
    drop(held);
    command.join().expect("ended").expect("an authority");
    assert_eq!(fs::metadata(&victim).expect("there").uid(), 0);
    // Without the link, root's files are the folder's user's.
    fs::remove_file(&authority).expect("removed");
    Authority::of(&folder).expect("an authority");
    assert_eq!(fs::metadata(&authority).expect("there").uid(), OTHER);
}

#[test]
fn what_is_no_token_of_this_host_is_refused() {
    let place = Place::new("tokens");
    let (one, two) = (place.token(1), place.token(2));
    let wrong = Token { secret: [0; 16], ..one.clone() };
    assert!(place.enroll("a", &wrong).contains("the token is not known"));
    let others = Token { number: 2, ..one.clone() };
    assert!(place.enroll("a", &others).contains("the token is not known"), "of another host");
    assert!(place.enroll("a", &Token { number: 3, ..one.clone() }).contains("the token is not known"));
    let authority = Token { authority: digest(b"another"), ..one.clone() };
    let said = place.enroll("a", &authority);
    assert!(said.contains("it is not the controller that gave the token"), "{said}");
    let old = place.token_until(3, seconds_of_day());
    assert!(place.enroll("a", &old).contains("the token has expired"));
    let newer = place.token(1);
    assert!(place.enroll("a", &one).contains("the token is not known"), "a newer one was given");
    assert_eq!((place.enroll("a", &newer), place.enroll("b", &two)), (String::new(), String::new()));
}

#[test]
fn a_certificate_is_that_of_a_host_that_is_not_revoked() {
    let place = Place::new("certificates");
    assert_eq!(place.enroll("a", &place.token(1)), "");
    let [_, key, path] = place.files("a");
    let files = Files { agent: None, key: &key, certificate: &path };
    let whole = fs::read_to_string(&path).expect("there");
    let kept: serde_json::Value = serde_json::from_str(&whole).expect("JSON");
    let private = unhex(kept["key"].as_str().expect("a key")).expect("digits");
    let pair = Pair::from_seed(&private).expect("a key");
    let with = |certificate: &CertificateDer<'_>, key: &str| {
        let mut kept = kept.clone();
        kept["certificate"] = hex(certificate).into();
        kept["key"] = key.into();
        fs::write(&path, kept.to_string()).expect("written");
        client::renew(place.at, &files).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let own = kept["key"].as_str().expect("a key");
    let authority = Authority::of(&place.folder).expect("the same");
    let expired = authority.certify("web-1", pair.public(), seconds_of_day() - 1).expect("signed");
    let said = with(&expired, own);
    assert!(said.contains("this host's certificate has expired"), "{said}");
    let elsewhere = Place::new("elsewhere");
    let other = Authority::of(&elsewhere.folder).expect("another");
    let foreign = other.certify("web-1", pair.public(), u32::MAX).expect("signed");
    let said = with(&foreign, own);
    assert!(said.contains("certificate is of another authority"), "{said}");
    // The thief of an authority signs what no host has asked for.
    let (thief, seed) = Pair::generate().expect("a key");
    let forged = authority.certify("web-1", thief.public(), u32::MAX).expect("signed");
    let said = with(&forged, &String::from(seed));
    assert!(said.contains("the certificate is no host's any more"), "{said}");
    fs::write(&path, &whole[..whole.len() / 2]).expect("written");
    assert!(place.renew("a").contains("is cut off; enrol again"));
    fs::write(&path, &whole).expect("written");
    assert_eq!(place.renew("a"), "");

    // Without a certificate there is nothing to renew.
    let said = client::ask_without_certificate(place.at, place.authority);
    assert!(said.contains("refused: no certificate is shown"), "{said}");
    let Questions { certificate, handshake, .. } = place.desk.questions();
    assert_eq!((certificate, handshake), (2, 2));

    let host = Host { number: 1, name: "web-1".to_owned(), secret: ENROLLED.to_owned() };
    let revoke = |ledger: &mut Ledger| {
        let revoked = digest(ledger.secret(&host).expect("a secret").as_bytes());
        let revoked = Entry { revoked: Some(revoked), ..ledger.entry(1).cloned().expect("known") };
        ledger.change::<Error>(|_| Ok(revoked)).expect("written");
    };
    let mut operators = Ledger::of(&place.folder).expect("another process");
    assert_eq!(place.renew("a"), "");
    operators.refresh().expect("read");
    revoke(&mut operators);
    assert!(place.renew("a").contains("refused: the host is revoked"));
    assert!(Ledger::of(&place.folder).expect("another life").is_revoked(&host));
    // It is taken back by another token, and the old certificate is void.
    let old = fs::read_to_string(&path).expect("there");
    assert_eq!(place.enroll("b", &place.token(1)), "");
    assert!(!Ledger::of(&place.folder).expect("read").is_revoked(&host));
    fs::write(&path, old).expect("written");
    assert!(place.renew("a").contains("the certificate is no host's any more"));
    assert_eq!(place.renew("b"), "");
    assert!(Certificate::read(&place.files("b")[2]).expect("there").until > seconds_of_day());
}

#[test]
fn a_flood_and_what_is_no_tls_keep_nobody_out() {
    let place = Place::new("flood");
    let connect = || TcpStream::connect(place.at).expect("taken");
    let idle: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    assert_eq!(place.enroll("a", &place.token(1)), "");
    place.until("the oldest are let go", |questions| questions.crowded >= 100);
    drop(idle);
    let mut garbage = connect();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    let _ = garbage.read(&mut [0; 64]);
    place.until("it is no TLS", |questions| questions.handshake == 1);
    let unfinished = place.desk.questions().unfinished;
    // The first bytes of a TLS record, and no more.
    let mut cut = connect();
    cut.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).expect("sent");
    drop(cut);
    place.until("it ended in the middle", |questions| questions.unfinished > unfinished);
    assert_eq!(place.enroll("b", &place.token(2)), "");
}

#[test]
fn who_is_no_controller_is_named() {
    let place = Place::new("strangers");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut stranger = Place::new("stranger");
    stranger.at = listener.local_addr().expect("bound");
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("asked");
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("answered");
    });
    let token = place.token(1);
    let said = stranger.enroll("a", &token);
    assert!(said.contains("it does not speak TLS"), "{said}");
    answers.join().expect("ended");
    let said = stranger.enroll("a", &token);
    assert!(said.contains("refused") && said.contains(&stranger.at.to_string()), "{said}");
    assert!(stranger.files("a").iter().all(|path| !path.exists()));
}

#[test]
fn who_is_not_in_the_hosts_file_neither_enrols_nor_renews() {
    let place = Place::new("absent");
    assert_eq!(place.enroll("a", &place.token(1)), "");
    let token = place.token(2);
    fs::write(place.folder.join("hosts"), "1 web-one enrolled\n2 web-2 0123456789abcdef\n").expect("written");
    let before = place.entry(1);
    for said in [place.renew("a"), place.enroll("b", &token)] {
        assert!(said.contains("hosts-file does not say that the host enrols itself"), "{said}");
    }
    assert!(place.entry(1) == before && place.entry(2).token.is_some());
    let Questions { certificate, token, .. } = place.desk.questions();
    assert_eq!((certificate, token), (1, 1));
    let named: Vec<Host> = lock(&place.ledger).named("web-1").collect();
    assert!(
        matches!(&named[..], [Host { number: 1, secret, .. }] if secret == ENROLLED),
        "it can be revoked"
    );
}

#[test]
fn who_holds_the_ledger_stops_nobody_for_long() {
    let place = Place::new("held");
    assert_eq!(place.enroll("a", &place.token(1)), "");
    let path = place.folder.join("enrolment");
    let file = fs::File::open(&path).expect("there");
    let held = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno).expect("held");
    let begin = Instant::now();
    let said = place.renew("a");
    assert!(said.contains("another process holds it"), "{said}");
    assert!(begin.elapsed() < Duration::from_secs(8));
    assert_eq!(place.desk.questions().failed, 1);
    drop(held);
    assert_eq!(place.renew("a"), "");
}

#[test]
fn a_host_that_asks_too_often_fills_nothing() {
    let place = Place::new("often");
    assert_eq!((place.enroll("a", &place.token(1)), place.enroll("b", &place.token(2))), Default::default());
    for until in 0..1100 {
        place.token_until(3, until);
    }
    let path = place.folder.join("enrolment");
    let lines = || fs::read_to_string(&path).expect("there").lines().count();
    let said: Vec<String> = (0..12).map(|_| place.renew("a")).collect();
    assert_eq!((&said[..9], said[8].as_str()), (&vec![String::new(); 9][..], ""));
    assert!(said[9..].iter().all(|said| said.contains("asks too often")), "{said:?}");
    assert_eq!(place.desk.questions().excess, 3);
    assert!(lines() < 20, "the daemon leaves out what has been overtaken: {}", lines());
    assert_eq!(place.renew("b"), "", "another host is served");
}

/// A process was killed while it wrote, and lines have been overtaken.
#[test]
fn a_ledger_is_whole_lines() {
    let place = Place::new("ledger");
    let token = place.token(1);
    let path = place.folder.join("enrolment");
    let mut text = fs::read_to_string(&path).expect("there");
    text.push_str("{\"number\":2,\"na");
    fs::write(&path, &text).expect("written");
    assert_eq!(place.enroll("a", &token), "");
    let mut ledger = Ledger::of(&place.folder).expect("read");
    assert!(ledger.entry(2).is_none() && ledger.entry(1).is_some_and(|entry| entry.secret.is_some()));
    for until in 0..1100 {
        place.token_until(3, until);
    }
    ledger.refresh().expect("read");
    ledger.shorten().expect("shortened");
    assert_eq!(fs::read_to_string(&path).expect("there").lines().count(), 2);
    // Others see that it is another file; one that cannot be read changes nothing.
    let mut other = Ledger::of(&place.folder).expect("read");
    assert_eq!(place.renew("a"), "");
    assert_eq!(place.enroll("b", &place.token(2)), "");
    fs::write(&path, "{\"number\":1,\"secret\":[\"precious\"]}\n").expect("written");
    let said = Ledger::of(&place.folder).err().map(|error| error.to_string()).unwrap_or_default();
    let before = other.entry(1).cloned();
    assert!(other.refresh().is_err() && other.entry(1) == before.as_ref());
    assert!(said.contains("line 1 is no entry") && !said.contains("precious"), "{said}");
}

/// Answers that are cut off anywhere are none.
#[test]
fn an_answer_is_whole_or_none() {
    let whole = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(client::parse(whole), Some((200, "{}")));
    for at in 0..whole.len() {
        assert_eq!(client::parse(&whole[..at]), None, "cut off at {at}");
    }
}

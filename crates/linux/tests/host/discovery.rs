//! A wrong file of a controller, compared with what real lldpds at both ends of every link report.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bandmaster_linux::controller::{Verdict, discover};
use bandmaster_linux::netns::Netns;

use super::agent::Site;
use super::controller::Network;
use super::hosts::{A, B, run};
use super::sources::{Foreign, is_missing, ports};

/// What lldpd tells at `node`'s socket.
fn lldp(folder: &Path, node: &str) -> String {
    let socket = folder.join(format!("lldp-{node}"));
    let told =
        Command::new("lldpctl").arg("-u").arg(socket).args(["-f", "json0"]).stderr(Stdio::null()).output();
    told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default()
}

/// An lldpd that calls its machine `name`, and speaks every second. It reads both from a file before it begins:
/// commands that arrive while it starts may leave it deaf.
fn lldpd(site: &Site, node: &Netns, place: &str, name: &str) -> Foreign {
    let at = |suffix: &str| site.folder.join(format!("lldp-{place}{suffix}")).display().to_string();
    fs::write(at(".conf"), format!("configure system hostname {name}\nconfigure lldp tx-interval 1\n"))
        .expect("written");
    Foreign::start(node, &site.folder, "lldpd", &["-d", "-u", &at(""), "-O", &at(".conf")])
}

#[test]
fn what_lldp_and_routes_show_is_held_against_the_file() {
    let test = "what_lldp_and_routes_show_is_held_against_the_file";
    if is_missing(test, &["lldpctl"]) {
        return;
    }
    let Some(network) = Network::oracle(test, "1s") else { return };
    let site = &network.site;
    let (r, b) = (site.hosts.r.name(), site.hosts.b.name());
    // A link that no file has.
    run(&format!("ip link add spare netns {r} type veth peer name other netns {b}"));
    run(&format!("ip -n {r} link set spare up"));
    run(&format!("ip -n {b} link set other up"));
    let daemons = [
        lldpd(site, &site.hosts.r, "r", "r"),
        lldpd(site, &site.hosts.a, "a", "a.example.net"),
        lldpd(site, &site.hosts.b, "b", "b\u{1b}[31m"),
    ];
    site.within(Duration::from_secs(60), "lldpd hears all", || {
        let told = lldp(&site.folder, "r");
        told.matches("a.example.net").count() == 1 && told.matches("[31m").count() == 2
    });
    let file = network.with_router("1s", "max(link.utilization) < 0.9", &[], &ports(""));
    let text = fs::read_to_string(&file).expect("read");
    let socket = format!("neighbours = true\nlldp-socket = \"{}\"\n", site.folder.join("lldp-r").display());
    fs::write(&file, text.replace("site = ", &format!("{socket}site = "))).expect("written");
    let text = fs::read_to_string(network.file()).expect("read");
    let wrong = text.replace("ports = [\"a\", \"b\"]", "ports = [\"a\", \"web-9\"]")
        + &format!("[[networks]]\nat = \"a\"\nprefixes = [\"{A}\", \"10.77.1.0/24\"]\n");
    fs::write(network.file(), &wrong).expect("written");
    let see = || discover(&network.file()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        see().remarks,
        ["r: no report yet; a router reports every 20 s, with `neighbours = true` in its agent's file"]
    );
    let process = network.start();
    let router = site.spawn_at(&site.hosts.r, &format!("run {}", file.display()), &[]);
    site.until("the router has reported", || see().routers[0].1.is_some());
    let told = see();
    let of = |interface: &str, prefix: Option<&str>| {
        let is = |finding: &&bandmaster_linux::controller::Finding| {
            finding.interface.as_deref() == Some(interface) && finding.prefix.as_deref() == prefix
        };
        let finding = told.findings.iter().find(is).unwrap_or_else(|| panic!("{interface}: {told}"));
        (finding.verdict, finding.seen.join(" "))
    };
    assert_eq!(of("to0", None), (Verdict::Agrees, "a.example.net cable".to_owned()));
    let strange = "b\\u{1b}[31m";
    assert_eq!(of("to1", None), (Verdict::Differs, format!("{strange} cable")));
    assert_eq!(of("spare", None), (Verdict::New, format!("{strange} other")));
    assert_eq!(of("to0", Some("10.77.0.0/24")).0, Verdict::New);
    assert_eq!(of("to1", Some("10.77.1.0/24")).0, Verdict::Differs);
    assert!(told.toml.contains("[[networks]]\nat = \"a\"\nprefixes = [\"10.77.0.0/24\"]"), "{told}");
    assert!(told.toml.contains("ports = [\"a\", \"b\\\\u{1b}[31m\"]"), "{told}");
    assert!(!told.to_string().contains('\u{1b}'));
    assert_eq!(fs::read_to_string(network.file()).expect("read"), wrong, "`discover` changes nothing");
    // Once its name is one, the file is put right with it.
    let named =
        |words: &[&str]| Command::new("lldpcli").args(words).stdout(Stdio::null()).status().expect("run");
    let at_b = site.folder.join("lldp-b").display().to_string();
    assert!(named(&["-u", &at_b, "configure", "system", "hostname", "b"]).success());
    let right =
        wrong.replace("web-9", "b").replace(&format!("\"{A}\", \"10.77.1.0/24\""), "\"10.77.0.0/24\"")
            + "[[networks]]\nat = \"b\"\nprefixes = [\"10.77.1.0/24\"]\n";
    assert!(right.contains(&B.to_string()) || !right.contains("web-9"));
    fs::write(network.file(), right).expect("written");
    site.within(Duration::from_secs(60), "all of the file agrees", || {
        let told = see();
        let listed = told.findings.iter().filter(|finding| finding.interface.as_deref() != Some("spare"));
        listed.clone().count() == 4 && listed.clone().all(|finding| finding.verdict == Verdict::Agrees)
    });
    // Without lldpd nobody takes silence for a link that is away.
    drop(daemons);
    site.within(Duration::from_secs(60), "the remarks say why nothing is seen", || {
        see().remarks.iter().any(|remark| remark == "r: lldpctl: lldpd does not answer")
    });
    assert!(process.stop().success() && router.stop().success(), "{}", site.log());
}

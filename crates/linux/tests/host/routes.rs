//! An agent to which the kernel refuses BPF sets routes.

use std::fs;
use std::io::{Read, Write};
use std::process::Command;
use std::time::Duration;

use bandmaster_core::tuning::Tuning;
use bandmaster_linux::agent::{self, Restored};

use super::agent::{Agent, Controller, LONG, Site, tuning};
use super::hosts::{Hosts, run};
use super::machine::skip;

const ROLE: &str = "cycle = \"1s\"\nlook = \"200ms\"\n";
/// Root as far as networks go, and no further: the kernel takes no program.
const NO_BPF: [&str; 5] = ["setpriv", "--bounding-set", "-all,+net_admin", "--inh-caps=-all", "--"];

fn site(test: &str, scheme: &str, role: &str) -> Option<Site> {
    if Command::new("setpriv").arg("--version").output().is_err() {
        skip(test, "no setpriv (package util-linux)");
        return None;
    }
    Site::of(test, scheme, role)
}

impl Site {
    fn start_without_bpf(&self) -> Agent {
        self.start_by(&NO_BPF)
    }

    fn routes(&self) -> String {
        run(&format!("ip -n {} -4 route show table main", self.hosts.a.name()))
    }

    fn route(&self, words: &str) {
        run(&format!("ip -n {} route {words}", self.hosts.a.name()));
    }

    /// A CUE, as far as the routes have it.
    fn put_in_force(&self, controller: &mut Controller) {
        controller.say(tuning(), LONG);
        self.until("routes have it", || {
            self.status().in_force.is_some() && self.routes().contains("initcwnd 25")
        });
    }
}

/// Initial window, least timeout and congestion control act on connections that begin; what routes cannot have is named; then
/// everything is as it was.
#[test]
fn where_bpf_is_refused_routes_have_the_settings() {
    let test = "where_bpf_is_refused_routes_have_the_settings";
    let Some(site) = site(test, "opentcp", ROLE) else { return };
    // One that has metrics of its own.
    site.route("add 10.78.0.0/16 via 10.77.0.254 initcwnd 7 mtu 1400 window 9000 metric 30");
    let (mut controller, before) = (Controller::new(&site), site.settings());
    let agent = site.start_without_bpf();
    let status = site.status();
    assert!(status.by_routes.as_deref().is_some_and(|why| why.contains("not permitted")), "{status}");
    for what in
        ["initial-rto", "window-cap", "pacing", "per-connection values", "live connections", "IPv6", "record"]
    {
        assert!(status.lacks.iter().any(|line| line.contains(what)), "{what}: {status}");
    }
    assert!(site.log().contains("the kernel takes no program"), "{}", site.log());
    assert!(site.metrics().contains("bandmaster_agent_by_routes 1.0\n"), "{}", site.metrics());
    let old = site.hosts.connection();
    site.assert_settings(&before, "nothing is sent yet");

    site.put_in_force(&mut controller);
    let status = site.status();
    assert_eq!((status.routes, status.set), (3, 0), "{status}");
    let named =
        |what: &str| status.remarks.iter().any(|remark| remark.starts_with(&format!("not done: {what}")));
    assert!(named("initial-rto") && named("window-cap") && !named("pacing"), "{status}");
    let routes = site.routes();
    assert!(routes.contains("mtu 1400") && routes.contains("window 9000"), "{routes}");
    let (mut here, mut there) = site.hosts.connection();
    let port = here.local_addr().expect("bound").port();
    here.write_all(&[0; 20_000]).expect("sent");
    there.read_exact(&mut [0; 20_000]).expect("read");
    let told = Hosts::ss(&site.hosts.a, &format!("sport = :{port}"));
    let number = |name: &str| {
        let word = told.split_whitespace().find_map(|word| word.strip_prefix(name));
        word.and_then(|word| word.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name} in {told}"))
    };
    assert!(told.contains("reno") && number("cwnd:") >= 25.0, "{told}");
    assert!(number("rto:") < 150.0, "the host's own is 200 ms: {told}");
    site.until("the agent has seen it", || site.status().connections == 2);
    assert!((0..4).any(|_| controller.hear().live == 1), "{}", site.status());

    // Other settings come in the place of these.
    controller.say(Tuning { initial_window: Some(31), ..Tuning::default() }, LONG);
    site.until("routes have others", || site.routes().contains("initcwnd 31"));
    assert!(!site.routes().contains("rto_min") && site.routes().contains("mtu 1400"), "{}", site.routes());
    controller.say(Tuning::default(), Duration::ZERO);
    site.until("nothing is in force", || site.status().in_force.is_none());
    site.assert_settings(&before, "taken back");
    let _after = site.hosts.connection();
    assert!(Hosts::ss(&site.hosts.a, "state established").contains("cwnd:10 "));

    site.put_in_force(&mut controller);
    assert!(agent.stop().success(), "{}", site.log());
    assert!(!site.state().join("journal").exists());
    site.assert_settings(&before, "stopped");
    drop((old, here, there));
}

/// Of a killed agent routes stay as they were set, until the next one starts, or `restore`.
#[test]
fn routes_of_a_killed_agent_are_what_they_were() {
    let test = "routes_of_a_killed_agent_are_what_they_were";
    let Some(site) = site(test, "opentcp", ROLE) else { return };
    site.route("add 10.78.0.0/16 via 10.77.0.254 initcwnd 7");
    let (mut controller, before) = (Controller::new(&site), site.settings());
    let mut agent = site.start_without_bpf();
    for round in 0..6 {
        site.put_in_force(&mut controller);
        // Both forms are in the journal, and the last one counts.
        if round % 3 == 1 {
            controller.say(Tuning { initial_window: Some(31), ..Tuning::default() }, LONG);
            site.until("routes have others", || site.routes().contains("initcwnd 31"));
        }
        agent.kill();
        assert!(site.routes().contains("initcwnd"), "{}", site.routes());
        if round % 2 == 0 {
            let state = site.state();
            let restored = site.hosts.a.enter(|| Ok(agent::restore(&state, false))).expect("entered");
            let all = Restored::Done { connections: 0, routes: 3, left_alone: Vec::new() };
            assert_eq!(restored, Ok(all));
            site.assert_settings(&before, "restored");
        }
        agent = site.start_without_bpf();
        site.assert_settings(&before, "the next agent has started");
    }
    drop(agent);
}

/// An administrator's change to a route meanwhile stays, and the agent reports it. A new route gets the settings in force.
#[test]
fn a_route_that_somebody_has_changed_is_left_alone() {
    let test = "a_route_that_somebody_has_changed_is_left_alone";
    let Some(site) = site(test, "opentcp", ROLE) else { return };
    site.route("add 10.78.0.0/16 via 10.77.0.254");
    let mut controller = Controller::new(&site);
    let agent = site.start_without_bpf();
    let before = site.settings();
    site.put_in_force(&mut controller);
    site.route("change 10.78.0.0/16 via 10.77.0.254 initcwnd 99");
    site.route("add 10.79.0.0/16 via 10.77.0.254");
    site.until("it is seen", || site.status().left_alone.iter().any(|route| route.contains("10.78.0.0/16")));
    site.until("the new one has it", || {
        site.routes().lines().any(|route| route.contains("10.79") && route.contains("initcwnd 25"))
    });
    assert!(site.log().contains("somebody has changed it since"), "{}", site.log());
    // Also after other settings.
    controller.say(Tuning { initial_window: Some(31), ..tuning() }, LONG);
    site.until("routes have others", || site.routes().contains("initcwnd 31"));
    assert!(
        site.routes().contains("10.78.0.0/16 via 10.77.0.254 dev cable initcwnd 99"),
        "{}",
        site.routes()
    );
    site.route("change default via 10.77.0.254 initcwnd 98");
    agent.kill();
    let state = site.state();
    let restored = site.hosts.a.enter(|| Ok(agent::restore(&state, false))).expect("entered");
    let Ok(Restored::Done { routes, left_alone, .. }) = restored else { panic!("{restored:?}") };
    let names = |route: &str| left_alone.iter().any(|word| word.starts_with(route));
    assert!(routes == 2 && names("default") && names("10.78.0.0/16"), "{routes}: {left_alone:?}");
    for (changed, was) in [("default via 10.77.0.254", 98), ("10.78.0.0/16 via 10.77.0.254", 99)] {
        assert!(site.routes().contains(&format!("{changed} dev cable initcwnd {was}")), "{}", site.routes());
        site.route(&format!("change {changed}"));
    }
    site.route("delete 10.79.0.0/16");
    site.assert_settings(&before, "as they were");
}

/// Windows and paces of single connections, and settings of some programs alone.
#[test]
fn what_routes_cannot_have_is_refused_by_name() {
    let test = "what_routes_cannot_have_is_refused_by_name";
    let Some(site) = site(test, "bas", "allocator = \"max-min\"\n") else { return };
    let mut agent = site.spawn("run", &NO_BPF);
    assert!(!agent.0.wait().expect("ended").success());
    assert!(site.log().contains("routes cannot have per-connection windows, paces"), "{}", site.log());
    let file = fs::read_to_string(site.file()).expect("read");
    let of_some = file.replace("\"bas\"", "\"opentcp\"").replace("allocator = \"max-min\"\n", "");
    fs::write(
        site.file(),
        of_some.replacen("[controller]", "control-group = \"/sys/fs/cgroup\"\n[controller]", 1),
    )
    .expect("written");
    let mut agent = site.spawn("run", &NO_BPF);
    assert!(!agent.0.wait().expect("ended").success());
    assert!(site.log().contains("routes cannot have control-group"), "{}", site.log());
}

//! Links and nodes that go down and up. That every packet has one fate the engine asserts at the end of each run.

use bandmaster_core::capture::CapturedPacket;
use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, parse};
use bandmaster_core::time::{Span, Time};
use bandmaster_sim::{RunOptions, run};

fn record(text: &str) -> RunRecord {
    let study = parse("x.toml", text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    run(&study.cases[0].scenario, 0, 0, &mut RunOptions::default()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn metric(record: &RunRecord, name: &str) -> f64 {
    record.metric(name).unwrap_or_else(|| panic!("no {name}"))
}

/// A fat tree of 16 hosts with links of 100 Mbit/s; eight of them answer `pod2.0` at once. Half of all ways into its pod lead over
/// `agg2-1`.
fn incast(seconds: u32, flows: &str, faults: &str) -> RunRecord {
    record(&format!(
        "version = 1\nname = \"incast\"\n[run]\nduration = \"{seconds}s\"\n[network]\nbuilder = \"fat-tree\"\nk = 4\n\
         [network.link]\nrate = \"100mbit\"\ndelay = \"50us\"\nqueue = \"100pkt\"\n\
         [[flows]]\nname = \"answers\"\nfrom = [\"pod1\", \"pod3\"]\nto = \"pod2.0\"\n{flows}\n{faults}"
    ))
}

/// The node fails at 200 ms, when no answer is complete.
#[test]
fn an_incast_goes_around_a_node_that_fails() {
    let sized = "size = \"1MB\"";
    let failing = "[[faults.nodes]]\nnode = \"agg2-1\"\ndown = \"200ms\"";
    let around = incast(4, sized, &format!("[faults]\nreroute = \"20ms\"\n{failing}"));
    assert_eq!((metric(&around, "completed"), metric(&around, "unfinished")), (8.0, 0.0));
    assert!(metric(&around, "fault_losses") > 0.0);
    // Two links to edge routers and two to core routers.
    assert_eq!((metric(&around, "reroutes"), metric(&around, "outage")), (1.0, 4.0 * 3.8));
    // Without other ways what led over it stands still, and loses every segment that it sends again.
    let stuck = incast(4, sized, &format!("[faults]\nreroute = \"10s\"\n{failing}"));
    let completed = metric(&stuck, "completed");
    assert!(completed < 8.0 && metric(&stuck, "reroutes") == 0.0, "{completed}");
    assert!(metric(&stuck, "fault_losses") > metric(&around, "fault_losses"));
    // When it comes back in time, they complete after all.
    let back = incast(4, sized, &format!("[faults]\nreroute = \"10s\"\n{failing}\nup = \"1s\""));
    assert_eq!((metric(&back, "completed"), metric(&back, "outage")), (8.0, 4.0 * 0.8));
    assert!(metric(&back, "fct_max") > metric(&around, "fct_max"));
    // Without faults there are no metrics of them.
    assert_eq!(incast(4, sized, "").metric("fault_losses"), None);
}

/// Rounds take other ways too, and so do subflows that choose theirs. With equal rates throughout, subflows over `agg2-2` lock those
/// over `agg2-1` out of the last queue: it is the former whose way fails.
#[test]
fn rounds_and_subflows_go_around_a_link_that_fails_and_comes_back() {
    let rounds = ("size = \"20kB\"\nrounds = 40", 320.0, "agg2-1", "core1");
    let subflows = ("size = \"1MB\"\nsubflows = 4\npaths = \"distinct\"", 8.0, "agg2-2", "core3");
    for (flows, done, router, core) in [rounds, subflows] {
        let links = format!(
            "[[faults.links]]\nends = [\"{router}\", \"edge2-1\"]\ndown = [\"200ms\", \"900ms\"]\nup = [\"500ms\", \"1500ms\"]\n\
             [[faults.links]]\nends = [\"{core}\", \"{router}\"]\ntime-to-failure = \"exponential(200ms)\"\n\
             time-to-repair = \"uniform(0ms, 100ms)\"\n"
        );
        let first = incast(20, flows, &links);
        assert_eq!(metric(&first, "completed"), done, "{flows}");
        assert!(metric(&first, "fault_losses") > 0.0 && metric(&first, "reroutes") > 4.0, "{flows}");
        assert_eq!(format!("{first:?}"), format!("{:?}", incast(20, flows, &links)), "{flows}");
    }
}

/// A capture has what a port began to send, and not what waited when the link failed, at the time of a sample.
#[test]
fn a_capture_ends_with_the_last_packet_that_left() {
    let text = "version = 1\nname = \"capture\"\n[run]\nduration = \"1s\"\nsample = \"100ms\"\n[network]\nbuilder = \"star\"\nsize = 3\n\
                [network.link]\nrate = \"10mbit\"\ndelay = \"1ms\"\nqueue = \"100pkt\"\n\
                [[flows]]\nname = \"f\"\nfrom = [\"hosts.0\", \"hosts.1\"]\nto = \"hosts.2\"\npairing = \"all-to-all\"\n\
                [[faults.links]]\nends = [\"hub\", \"hosts.2\"]\ndown = \"300ms\"\n";
    let study = parse("x.toml", text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut times = Vec::new();
    let mut keep = |packet: &CapturedPacket| times.push(packet.at);
    let mut options = RunOptions { capture: Some(("hub->hosts.2", &mut keep)), ..RunOptions::default() };
    let record = run(&study.cases[0].scenario, 0, 0, &mut options).unwrap_or_else(|e| panic!("{e}"));
    assert!(metric(&record, "fault_losses") > 10.0 && times.len() > 100);
    let down = Time::ZERO + Span::from_millis(300);
    assert!(times.is_sorted() && times.iter().all(|at| *at <= down), "{:?}", times.last());
}

/// A datagram each millisecond over 5 ms of wire. The link is down for half a second: it loses those on the wire, 5 or 6, and the
/// 500 that come meanwhile.
#[test]
fn a_link_that_is_down_loses_what_is_on_it_and_what_comes() {
    let text = |faults: &str| {
        format!(
            "version = 1\nname = \"cbr\"\n[run]\nduration = \"3s\"\nsample = \"500ms\"\n[network]\nbuilder = \"dumbbell\"\nleft = 1\n\
             right = 1\nhost-delay = 0.0\naccess = {{ rate = \"1gbit\", delay = \"10us\" }}\n\
             bottleneck = {{ rate = \"100mbit\", delay = \"5ms\", queue = \"10pkt\" }}\n\
             [[flows]]\nname = \"cbr\"\nfrom = \"left\"\nto = \"right\"\ntransport = \"udp\"\nrate = \"10mbit\"\npacket = \"1250B\"\n\
             measured = true\n{faults}"
        )
    };
    let whole = record(&text(""));
    for reroute in ["0s", "exponential(100ms)"] {
        let faults = format!(
            "[faults]\nreroute = \"{reroute}\"\n[[faults.links]]\nends = [\"r1\", \"r2\"]\ndown = \"1000300us\"\n\
             up = \"1500300us\"\n"
        );
        let cut = record(&text(&faults));
        let lost = metric(&cut, "fault_losses");
        assert!((505.0..=506.0).contains(&lost), "{lost}");
        assert_eq!((metric(&cut, "drops"), metric(&cut, "outage")), (0.0, 0.5));
        let throughput = |record: &RunRecord| {
            let series = record.series.iter().find(|s| s.entity == "all" && s.metric == "throughput");
            series.expect("a series").values.clone()
        };
        let (before, after) = (throughput(&whole), throughput(&cut));
        assert!(after[2] < 0.02 * before[2], "{after:?}");
        assert_eq!((before[1], before[4], before[5]), (after[1], after[4], after[5]));
        let missing = (metric(&whole, "throughput") - metric(&cut, "throughput")) * 3e6 / 8.0 / 1222.0;
        assert!((missing - lost).abs() < 0.5, "{missing} did not come, {lost} are lost");
    }
}

/// Messages of exchanges find other ways, over new connections and kept ones, and none where there is none until it is back.
#[test]
fn exchanges_go_on_around_spines_and_after_leaves_that_fail() {
    let text = |more: &str, faults: &str| {
        format!(
            "version = 1\nname = \"exchange\"\n[run]\nduration = \"30s\"\n[network]\nbuilder = \"leaf-spine\"\nleaves = 3\n\
             spines = 2\nsize = 2\n[network.link]\nrate = \"100mbit\"\ndelay = \"10us\"\nqueue = \"64pkt\"\n\
             [[flows]]\nname = \"m\"\nfrom = \"hosts\"\nto = \"hosts\"\npairing = \"exchange\"\nsize = \"144800B\"\nrounds = 20\n\
             {more}\n{faults}"
        )
    };
    let spine =
        "[[faults.nodes]]\nnode = \"spine1\"\ndown = [\"50ms\", \"400ms\"]\nup = [\"300ms\", \"600ms\"]\n";
    let leaf = "[[faults.nodes]]\nnode = \"leaf1\"\ndown = \"50ms\"\nup = \"2s\"\n";
    let both = format!("[faults]\nreroute = \"30ms\"\n{spine}{leaf}");
    for more in ["", "persistent = true", "schedule = \"window\"\noutstanding = 3"] {
        for faults in [spine, leaf, both.as_str()] {
            let record = record(&text(more, faults));
            assert_eq!(metric(&record, "completed"), 20.0 * 30.0, "{more} {faults}");
            assert!(metric(&record, "fault_losses") > 0.0, "{more} {faults}");
        }
    }
}

/// What is down at the start is known from the start: nothing is lost to it, and no timer runs out.
#[test]
fn routes_know_from_the_start_what_is_down_then() {
    let faults = "[faults]\nreroute = \"10s\"\n[[faults.nodes]]\nnode = \"agg2-1\"\ndown = \"0s\"\n";
    let record = incast(4, "size = \"20kB\"", faults);
    assert_eq!((metric(&record, "completed"), metric(&record, "fault_losses")), (8.0, 0.0));
    assert_eq!((metric(&record, "reroutes"), metric(&record, "outage")), (1.0, 4.0 * 4.0));
}

/// Both flows share 10 Mbit/s over `r3`, as long as the direct link is down. Then `free` takes that, and `bound` does not: their fair
/// shares are those of two ways, where one had been.
#[test]
fn fair_shares_are_those_of_the_ways_that_flows_take_now() {
    let record = record(
        "version = 1\nname = \"shares\"\n[run]\nduration = \"9s\"\nsample = \"1s\"\n[network]\nhosts = [\"a\", \"b\"]\n\
         routers = [\"r1\", \"r2\", \"r3\"]\n\
         links = [\n{ ends = [\"a\", \"r1\"], rate = \"1gbit\", delay = \"1ms\" },\n\
         { ends = [\"r2\", \"b\"], rate = \"1gbit\", delay = \"1ms\" },\n\
         { ends = [\"r1\", \"r2\"], rate = \"40mbit\", delay = \"1ms\", queue = \"50pkt\" },\n\
         { ends = [\"r1\", \"r3\"], rate = \"10mbit\", delay = \"1ms\", queue = \"50pkt\" },\n\
         { ends = [\"r3\", \"r2\"], rate = \"10mbit\", delay = \"1ms\", queue = \"50pkt\" }]\n\
         [[flows]]\nname = \"free\"\nfrom = \"a\"\nto = \"b\"\n\
         [[flows]]\nname = \"bound\"\nfrom = \"a\"\nto = \"b\"\npaths = [\"r3\"]\n\
         [[faults.links]]\nends = [\"r1\", \"r2\"]\ndown = \"0s\"\nup = \"4s\"\n",
    );
    let values = |metric: &str| {
        let series = record.series.iter().find(|s| s.entity == "all" && s.metric == metric);
        series.expect("a series").values.clone()
    };
    let (normalised, plain) = (values("jain_normalised"), values("jain"));
    assert!(values("throughput")[8] > 45.0);
    // 38 and 9.6 Mbit/s are just where two ways lead; they are unequal where one does.
    assert!(plain[8] < 0.8 && normalised[8] > 0.98, "{plain:?} {normalised:?}");
    assert_eq!(plain[2], normalised[2], "one way");
}

/// BAS's hosts announce the new ways, and the allocator shares out the links there.
#[test]
fn bas_goes_on_when_flows_take_other_ways() {
    let bas = "[schemes.bas]\nservers = \"pod2.0\"\ndomain = [\"pod2.0\", \"edge2-1\", \"agg2-1\", \"agg2-2\"]\n\
               allocator = \"max-min\"\n";
    let faults = "[[faults.nodes]]\nnode = \"agg2-1\"\ndown = \"1s\"\nup = \"2s\"\n";
    let record = incast(6, "start = \"uniform(0ms, 10ms)\"", &format!("{bas}{faults}"));
    let throughput = metric(&record, "throughput");
    assert!(throughput > 85.0, "{throughput} Mbit/s of 95");
    assert_eq!((metric(&record, "refusals"), metric(&record, "reroutes")), (0.0, 2.0));
}

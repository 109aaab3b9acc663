//! `bandmaster controller whatif` on hours that nobody has recorded. A real one is in `lab`.

mod lab;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use bandmaster_core::rng::Stream;
use bandmaster_core::sizes::SizeDistribution;
use bandmaster_core::sketch::{About, BURST, Histogram, INTERVAL, Kept, Row, Way, parts};

use crate::program::Scratch;

const RACK: u32 = 40;
/// Microseconds that every transfer is reported to have taken.
const MEASURED: u64 = 2_000;

/// An hour of `hosts` at links of 1 Gbit/s in racks, each of which receives `share` of what its link carries, half of it in
/// bursts.
fn recorded(name: &str, hosts: u32, minutes: u32, share: f64) -> Scratch {
    let scratch = Scratch::new(name);
    let racks = hosts.div_ceil(RACK);
    let mut file = format!(
        "version = 1\nscheme = \"opentcp\"\nhosts-file = \"hosts\"\nstate-directory = \"{}\"\n[role]\npolicies = [\"present.toml\"]\n",
        scratch.path("state").display()
    );
    let mut names = String::new();
    let rack = |host: u32| host / RACK;
    for host in 0..hosts {
        names += &format!("{} h{host} 0123456789abcdef-{host}\n", host + 1);
        file += &format!(
            "[[links]]\nends = [\"h{host}\", \"tor{}\"]\nrate = \"1gbit\"\ndelay = \"5us\"\nqueue = \"128pkt\"\n",
            rack(host)
        );
    }
    for rack in 0..racks {
        names += &format!("{} tor{rack} 0123456789abcdef-tor{rack}\n", hosts + 1 + rack);
        let own = rack * RACK..hosts.min((rack + 1) * RACK);
        let ports = own
            .map(|host| format!("\"h{host}\""))
            .chain(["\"core\"".to_owned()])
            .collect::<Vec<_>>()
            .join(", ");
        file += &format!(
            "[[routers]]\nname = \"tor{rack}\"\nports = [{ports}]\n\
             [[links]]\nends = [\"tor{rack}\", \"core\"]\nrate = \"10gbit\"\ndelay = \"5us\"\nqueue = \"512pkt\"\n"
        );
    }
    scratch.write("c.toml", file);
    scratch.write("hosts", names);
    fs::set_permissions(scratch.path("hosts"), fs::Permissions::from_mode(0o600)).expect("set");
    let policy = |name: &str, when: &str| {
        format!(
            "version = 1\nname = \"{name}\"\ngoal = \"a test\"\ncycle = \"10s\"\nstatistics = [\"link.utilization\"]\n\
             [[rules]]\nname = \"room\"\nwhen = \"{when}\"\nset = {{ initial-window = 20, min-rto = \"4ms\", initial-rto = \"200ms\" }}\n"
        )
    };
    scratch.write("present.toml", policy("present", "max(link.utilization) < 0.0"));
    scratch.write("new.toml", policy("new", "mean(link.utilization) < 0.9"));
    let sizes = SizeDistribution::shipped("hadoop").expect("ships");
    let mut stream = Stream::new(1, 0, "recorded");
    fs::create_dir_all(scratch.path("state/recorded")).expect("made");
    for minute in 0..minutes {
        let mut lines = Vec::new();
        for host in 0..hosts {
            let bytes = share * 1e9 / 8.0 * 60.0;
            let (mut bursts, mut rows) = (Histogram::default(), Vec::new());
            let peers = 8.min(hosts - 1);
            let size = 32_000;
            let rounds = (bytes / 2.0 / (size * u64::from(peers)) as f64) as u64;
            let files = (bytes / 2.0 / sizes.mean() / f64::from(peers)) as u64;
            let together =
                if u64::from(peers) >= BURST { u64::from(peers) } else { panic!("a burst has more") };
            (0..rounds).for_each(|_| bursts.note(together));
            for peer in 1..=peers {
                // Some in the rack, some elsewhere.
                let peer = (host + peer * (hosts / (peers + 1)).max(1)) % hosts;
                let address = [10, 0, (peer / 256) as u8, (peer % 256) as u8].into();
                let row = |in_burst, sizes: Histogram, bytes| {
                    let mut times = Histogram::default();
                    times.note(MEASURED);
                    Row { peer: address, way: Way::Received, in_burst, bytes, sizes, times, held: 0 }
                };
                let (mut each, mut drawn, mut sum) = (Histogram::default(), Histogram::default(), 0);
                (0..rounds).for_each(|_| each.note(size));
                for _ in 0..files {
                    let size = sizes.draw(&mut stream).get();
                    sum += size;
                    drawn.note(size);
                    bursts.note(1);
                }
                rows.push(row(true, each, rounds * size));
                if files > 0 {
                    rows.push(row(false, drawn, sum));
                }
            }
            let about = About {
                control: "cubic".to_owned(),
                tick: 4000,
                bursts,
                spread: rounds * 100,
                ..About::default()
            };
            for report in parts(minute, INTERVAL, about, rows) {
                let from = [10, 0, (host / 256) as u8, (host % 256) as u8].into();
                lines.extend(Kept { host: host + 1, from, report }.line());
            }
        }
        fs::write(scratch.path(&format!("state/recorded/{}", 1000 + minute)), lines).expect("written");
    }
    scratch
}

#[test]
fn a_recorded_hour_is_simulated_under_both_policies() {
    let scratch = recorded("whatif", 12, 2, 0.005);
    let words = ["controller", "whatif", "c.toml", "--policy", "new.toml", "--seeds", "2"];
    let saving = [&words[..], &["--json", "--scenario", "out"]].concat();
    let said = scratch.run(&saving).expect(0);
    let told = said.json();
    let recorded = &told["recorded"];
    assert_eq!((recorded["minutes"].as_u64(), recorded["hosts"].as_u64()), (Some(2), Some(12)), "{told:#}");
    let near = |value: &serde_json::Value, wanted: f64, within: f64| {
        let value = value.as_f64().expect("a number");
        assert!((value / wanted - 1.0).abs() < within, "{value}, not {wanted}: {told:#}");
    };
    near(&recorded["fct-p50"], MEASURED as f64 / 1e6, 0.07);
    near(&recorded["bytes"], 12.0 * 2.0 * 0.005 * 1e9 / 8.0 * 60.0, 0.2);
    // As many transfers are simulated as were recorded in the part of the time.
    let share = told["simulated"]["share"].as_f64().expect("a number");
    let completed = &told["metrics"]["completed"]["present"]["mean"];
    near(completed, recorded["transfers"].as_f64().expect("a number") * share, 0.05);
    // A policy that never fires sets nothing; the other always does. 32 kB need fewer round trips with 20 segments.
    let rules = told["rules"].as_array().expect("rules");
    let fires: Vec<f64> = rules.iter().filter_map(|rule| rule["fires"].as_f64()).collect();
    assert!(fires.len() == 2 && fires[0] == 0.0 && fires[1] > 0.99, "{told:#}");
    let tuned: Vec<f64> =
        told["tuned"].as_array().expect("both").iter().filter_map(serde_json::Value::as_f64).collect();
    assert!(tuned[0] == 0.0 && tuned[1] > 0.95, "{told:#}");
    // The same words give the same numbers, and the scenario is one that `run` takes.
    let again = scratch.run(&[&words[..], &["--json"]].concat()).expect(0).json();
    assert_eq!(again["metrics"], told["metrics"]);
    let text = scratch.run(&words).expect(0).stdout;
    for part in
        ["completion, 99th percentile", "fires in 100 % of the cycles", "off what was measured: median"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    scratch.run(&["check", "out/whatif.toml"]).expect(0);
    // It is somebody's by now.
    let said = scratch.run(&saving).expect(2);
    assert!(said.stderr.contains("out"), "{said:#?}");
    assert_eq!(recorded["minutes-ago"].as_array().map(Vec::len), Some(2), "{told:#}");
}

#[test]
fn what_is_missing_is_named() {
    let scratch = recorded("whatif-missing", 12, 1, 0.01);
    let words = ["controller", "whatif", "c.toml", "--policy", "new.toml"];
    let whole = fs::read_to_string(scratch.path("c.toml")).expect("read");
    for (from, to, why) in [
        (
            "delay = \"5us\"\nqueue = \"128pkt\"",
            "queue = \"128pkt\"",
            "the link between `h0` and `tor0` has no `delay`",
        ),
        ("queue = \"512pkt\"", "", "the link between `tor0` and `core` has no `queue`"),
        ("ends = [\"h3\", \"tor0\"]", "ends = [\"other\", \"tor0\"]", "host `h3` has no link"),
    ] {
        scratch.write("c.toml", whole.replacen(from, to, 1));
        let said = scratch.run(&words).expect(2);
        assert!(said.stderr.contains(why), "{why}: {said:#?}");
    }
    scratch.write("c.toml", &whole);
    let said = scratch.run(&["controller", "whatif", "c.toml", "--policy", "other.toml"]).expect(2);
    assert!(said.stderr.contains("other.toml"), "{said:#?}");
    fs::remove_dir_all(scratch.path("state/recorded")).expect("removed");
    let said = scratch.run(&words).expect(2);
    assert!(said.stderr.contains("nothing is recorded"), "{said:#?}");
}

/// `cargo test --release -p bandmaster --test cli -- --ignored five_hundred --nocapture`
#[test]
#[ignore = "a minute, in release; `bash ci.sh whatif` runs it"]
fn an_hour_of_five_hundred_hosts_takes_less_than_a_minute() {
    for share in [0.01, 0.05] {
        let scratch = recorded("whatif-500", 500, 60, share);
        let began = Instant::now();
        let said = scratch.run(&["controller", "whatif", "c.toml", "--policy", "new.toml"]).expect(0);
        println!("{share}: {:?}\n{}", began.elapsed(), said.stdout);
        assert!(began.elapsed().as_secs() < 60, "{share}: {:?}", began.elapsed());
    }
}

//! The scheme of this crate.

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, parse};
use bandmaster_core::scheme;

use super::{figure, scenario, simulate};

/// 10 Mbit/s carry 826 full packets a second: the quota lasts for 0.7 s and more.
const SCENARIO: &str = r#"
version = 1
name = "quota"

[run]
duration = "4s"

[network]
hosts = ["a", "b"]
routers = ["r"]
frame-overhead = "14B"
host-delay = 0.0

[network.link]
rate = "10mbit"
delay = "5ms"
queue = "50pkt"

[[network.links]]
ends = ["a", "r"]
rate = "100mbit"

[[network.links]]
ends = ["r", "b"]

[[flows]]
name = "bulk"
from = "a"
to = "b"

[measure]
windows = [{ name = "after", from = "2s", to = "4s" }]

# At the sender: a receiver cannot take back what it has offered.
[schemes.quota]
port = "r->b"
keeper = "a"
packets = "500pkt"
rate = "1mbit"
"#;

/// What is wrong with a run in which the quota was used up.
fn wrong(record: &RunRecord) -> Result<(), String> {
    let (all, after) = (figure(record, "throughput"), figure(record, "after.throughput"));
    // 500 packets of 1448 bytes take 0.7 s; the other 3.3 s are paced.
    if !(2.2..2.6).contains(&all) {
        return Err(format!("{all} Mbit/s in all, {after} after"));
    }
    if (after - 1.0).abs() > 0.05 {
        return Err(format!("{after} Mbit/s when the quota is used up, not 1.0"));
    }
    // 80 messages of 61 bytes.
    let control = figure(record, "control_rate");
    if !(9.0..=11.0).contains(&control) {
        return Err(format!("{control} kbit/s of messages"));
    }
    assert_eq!(figure(record, "refusals"), 0.0);
    Ok(())
}

#[test]
fn a_scheme_outside_core_acts_in_the_simulator() {
    let record = simulate(&scenario(SCENARIO, &[&bandmaster_toy::DEF]));
    wrong(&record).unwrap_or_else(|why| panic!("{why}"));
    let off = scenario(&format!("{SCENARIO}enabled = false"), &[&bandmaster_toy::DEF]);
    assert!(figure(&simulate(&off), "after.throughput") > 9.0);
}

#[test]
#[cfg(target_os = "linux")]
fn a_scheme_outside_core_acts_in_the_lab() {
    const TEST: &str = "a_scheme_outside_core_acts_in_the_lab";
    let Some(_alone) = super::lab::alone(TEST) else { return };
    super::machine::in_time(TEST, || {
        let record = super::lab::emulate(&scenario(SCENARIO, &[&bandmaster_toy::DEF]));
        println!("{:?}", record.metrics);
        let result = wrong(&record);
        super::machine::timely!(result.is_ok(), "{result:?}");
        Ok(())
    });
}

#[test]
fn who_does_not_pass_it_in_does_not_know_it() {
    let errors = parse("x.toml", SCENARIO, &Options::default()).expect_err("quota is not in core's registry");
    assert!(errors.to_string().contains("quota"), "{errors}");
    let codes = scheme::REGISTRY.iter().map(|def| def.code);
    assert!(codes.max() < Some(256) && bandmaster_toy::DEF.code >= 256);
}

//! Schemes that `bandmaster-core` does not know, in the simulator and in the lab. The lab needs root; without, each test
//! says what it left out.

mod decisions;
#[cfg(target_os = "linux")]
#[path = "../../../linux/tests/machine/mod.rs"]
mod machine;
#[cfg(target_os = "linux")]
mod names;
mod readers;
mod refusals;
mod toy;

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, Scenario, parse};
use bandmaster_core::scheme::SchemeDef;

fn scenario(text: &str, schemes: &[&'static SchemeDef]) -> Scenario {
    let options = Options { schemes, ..Options::default() };
    let mut study = parse("test.toml", text, &options).unwrap_or_else(|e| panic!("{e}"));
    study.cases.remove(0).scenario
}

fn simulate(scenario: &Scenario) -> RunRecord {
    bandmaster_sim::run(scenario, 0, 0, &mut Default::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn figure(record: &RunRecord, name: &str) -> f64 {
    record.metric(name).unwrap_or_else(|| panic!("no {name} in {:?}", record.metrics))
}

#[cfg(target_os = "linux")]
mod lab {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use bandmaster_core::report::RunRecord;
    use bandmaster_core::scenario::Scenario;
    use bandmaster_linux::lab::{self, RunOptions};

    use super::machine::{no_lab, skip};

    /// The only lab of this process; none, with the reason printed, when this user may make none.
    pub(crate) fn alone(test: &str) -> Option<MutexGuard<'static, ()>> {
        static ONE: Mutex<()> = Mutex::new(());
        if let Some(why) = no_lab() {
            skip(test, why);
            return None;
        }
        Some(ONE.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn emulate(scenario: &Scenario) -> RunRecord {
        lab::run(scenario, 0, 0, &RunOptions { even_if_slow: true, ..RunOptions::default() })
            .unwrap_or_else(|e| panic!("{e}"))
            .record
    }
}

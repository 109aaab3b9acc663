//! `bandmaster calibrate`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Measure how well this machine emulates links, and whether a scenario asks for more
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct CalibrateArgs {
    /// Say too whether this scenario asks for more than was measured
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    scenario: Option<PathBuf>,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  bandmaster calibrate
  bandmaster calibrate network.toml
  bandmaster calibrate --json | jq .capacity

Joins two network namespaces by one emulated link and measures delay, loss, rate and how many
packets per second the forwarder carries; under 30 s. Each measurement is made three times and the
best counts, since whatever else runs on the machine disturbs: stop builds and other load first.

Exit codes: 0 measured (a missed goal is reported, not an error), 2 usage or scenario, 3 the machine
lacks what emulation needs, or the scenario asks for more than was measured, 4 failure.";

/// Prints how well this machine emulates links.
#[cfg(target_os = "linux")]
pub(crate) fn calibrate(args: &CalibrateArgs, console: Console) -> Result<Exit, Failure> {
    use bandmaster_linux::{calibrate, netns};

    use super::scenario_file::ScenarioFile;
    use crate::report::manifest::json_lines;

    let study = match &args.scenario {
        None => None,
        Some(path) => Some(ScenarioFile::read(path)?.study(&bandmaster_core::scenario::Options::default())?),
    };
    // What cannot be built needs no measuring.
    let demand = study.as_ref().map(linux::Demand::new).transpose()?;
    netns::take_privileges().map_err(linux::failure)?;
    console.say("measuring for about 28 s; other load on this machine disturbs");
    let measured = calibrate::measure().map_err(linux::failure)?;
    let verdict = demand.as_ref().map(|demand| demand.judge(&measured));
    let text = if args.json {
        json_lines(&linux::json(&measured, demand.as_ref(), verdict), 2)
    } else {
        linux::table(&measured, demand.as_ref(), verdict)
    };
    console.print(&text)?;
    Ok(if verdict == Some(linux::Verdict::TooMuch) { Exit::MissingCapability } else { Exit::Success })
}

/// There is nothing to measure.
#[cfg(not(target_os = "linux"))]
pub(crate) fn calibrate(_args: &CalibrateArgs, _console: Console) -> Result<Exit, Failure> {
    let why = "calibrate: links are emulated on Linux only; `run` works here";
    Err(Failure::new(Exit::MissingCapability, why))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::ErrorKind;

    use bandmaster_core::scenario::Study;
    use bandmaster_linux::Error;
    use bandmaster_linux::calibrate::{
        COMFORTABLE, Calibration, DELAY, DELAY_GOAL, DELAY_PACKETS, LOSS_PACKETS, ROUNDS, load,
    };
    use comfy_table::Table;
    use serde::Serialize;
    use serde_json::{Value, json};

    use crate::exit::{Exit, Failure};
    use crate::report::table::plain;

    /// Load on a core above which measurements are not to be trusted.
    const BUSY: f64 = 0.25;

    /// What the hardest case of a scenario asks for.
    #[derive(Clone, PartialEq, Debug, Serialize)]
    pub(super) struct Demand {
        case: String,
        packets: f64,
    }

    /// Whether a scenario fits the machine.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub(super) enum Verdict {
        Fits,
        Tight,
        TooMuch,
    }

    impl Demand {
        /// # Errors
        /// When the lab cannot build any case.
        pub(super) fn new(study: &Study) -> Result<Self, Failure> {
            let (mut hardest, mut refused) = (None::<Self>, None);
            for case in &study.cases {
                let packets = match load(&case.scenario) {
                    Ok(load) => load.packets,
                    Err(error) => {
                        refused.get_or_insert((case, error));
                        continue;
                    }
                };
                if hardest.as_ref().is_none_or(|hardest| packets > hardest.packets) {
                    let points = case.points.iter().filter(|_| !case.base);
                    let points = points.map(|(sweep, value)| format!(", {sweep} = {value}"));
                    hardest =
                        Some(Self { case: case.variant.clone() + &points.collect::<String>(), packets });
                }
            }
            match (hardest, refused) {
                (Some(hardest), _) => Ok(hardest),
                (None, Some((case, error))) => {
                    Err(Failure::new(exit_of(&error), format!("{}: {error}", case.variant)))
                }
                (None, None) => Err(Failure::usage("the scenario has no case")),
            }
        }

        pub(super) fn judge(&self, measured: &Calibration) -> Verdict {
            match self.share(measured) {
                share if share > 1.0 => Verdict::TooMuch,
                share if share > COMFORTABLE => Verdict::Tight,
                _ => Verdict::Fits,
            }
        }

        fn share(&self, measured: &Calibration) -> f64 {
            self.packets / measured.capacity.per_core().max(1.0)
        }
    }

    pub(super) fn failure(error: Error) -> Failure {
        Failure::new(exit_of(&error), error)
    }

    /// Here the user's privileges are a part of what the machine can do.
    fn exit_of(error: &Error) -> Exit {
        match error {
            Error::Os { error, .. } if error.kind() == ErrorKind::PermissionDenied => Exit::MissingCapability,
            error => error.into(),
        }
    }

    pub(super) fn json(measured: &Calibration, demand: Option<&Demand>, verdict: Option<Verdict>) -> Value {
        let mut document = json!({"version": 1});
        if let (Value::Object(members), Value::Object(measured)) = (&mut document, json!(measured)) {
            members.extend(measured);
        }
        document["goals"] = json!({
            "delay": measured.delay.reaches_goal(),
            "loss": measured.loss.reaches_goal(),
        });
        document["capacity"]["per_core"] = json!(measured.capacity.per_core());
        document["bare"]["per_core"] = json!(measured.bare.per_core());
        if let Some(demand) = demand {
            document["scenario"] = json!(demand);
            document["scenario"]["verdict"] = json!(verdict);
        }
        document
    }

    pub(super) fn table(measured: &Calibration, demand: Option<&Demand>, verdict: Option<Verdict>) -> String {
        let Calibration { delay, lateness, loss, rates, capacity, .. } = measured;
        let reached = |goal: bool| if goal { "reached" } else { "MISSED" };
        let delay_ms = DELAY.as_secs_f64() * 1e3;
        let goal_ms = delay_ms + DELAY_GOAL.as_secs_f64() * 1e3;
        let mut table = Table::new();
        table.set_header(["what", "measured", "goal", ""]);
        table.add_row([
            format!("delay of {delay_ms} ms at {DELAY_PACKETS} packets/s"),
            format!("{:.3} / {:.3} / {:.3} ms (p50 / p99 / longest)", delay.p50, delay.p99, delay.max),
            format!("p99 up to {goal_ms} ms"),
            reached(delay.reaches_goal()).to_owned(),
        ]);
        let slow = if loss.is_at_rate() { "" } else { ": the sender managed no more" };
        let lost = match loss.lost() {
            0 => format!("none of {}", loss.sent),
            lost => format!(
                "{lost} of {} ({} unread, {} dropped, {} not received)",
                loss.sent, loss.unread, loss.dropped, loss.unreceived
            ),
        };
        table.add_row([
            format!("loss at {LOSS_PACKETS} packets/s"),
            format!("{lost} at {:.0} packets/s{slow}; {:.3} ms (p99)", loss.rate, loss.delay.p99),
            format!("none, p99 up to {goal_ms} ms"),
            reached(loss.reaches_goal()).to_owned(),
        ]);
        for rate in rates {
            let asked = rate.asked as f64;
            table.add_row([
                format!("rate of {} Mbit/s, mean", asked / 1e6),
                format!("{:.4} Mbit/s", rate.mean / 1e6),
            ]);
            for window in &rate.windows {
                table.add_row([
                    format!("  in windows of {} ms", window.window),
                    format!(
                        "off by {:.2} % (p99), {:.2} % (worst)",
                        window.p99 * 100.0,
                        window.worst * 100.0
                    ),
                ]);
            }
        }
        table.add_row([
            "packets of 1500 B over one link".to_owned(),
            format!(
                "{:.0} packets/s of {:.0} offered, by {:.0} % of a core",
                capacity.carried,
                capacity.offered,
                capacity.core * 100.0
            ),
        ]);
        table.add_row([
            "capacity of the forwarder".to_owned(),
            format!("{:.0} packets/s, over all links of a network", capacity.per_core()),
        ]);
        table.add_row([
            "  of a loop that only reads and writes".to_owned(),
            format!("{:.0} packets/s: what the kernel takes of it", measured.bare.per_core()),
        ]);
        let mut text = format!("{}\n\n{}", plain(table), conditions(measured));
        text += &format!("How late packets come, for the links of a simulation: jitter = \"{lateness}\"\n");
        if let (Some(demand), Some(verdict)) = (demand, verdict) {
            text += &format!("\n{}\n", words(demand, demand.share(measured), verdict));
        }
        text
    }

    fn conditions(measured: &Calibration) -> String {
        let mut text = format!("The best of {ROUNDS} rounds each. ");
        text += match measured.load_before {
            Some(load) if load > BUSY * measured.cores as f64 => {
                "OTHER WORK RUNS ON THIS MACHINE and disturbs: repeat when it is idle. "
            }
            _ => "A busy machine disturbs: repeat when it is idle. ",
        };
        if let Some(load) = measured.load_before {
            text += &format!("Load before: {load:.2} on {} cores.\n", measured.cores);
        }
        if !measured.real_time {
            text += "The forwarder has no real-time priority here: run as root (sudo) for better timing.\n";
        }
        text
    }

    fn words(demand: &Demand, share: f64, verdict: Verdict) -> String {
        let Demand { case, packets } = demand;
        let asks = format!(
            "The scenario asks for up to {packets:.0} packets/s over all its links ({case}): {:.0} % of the capacity",
            share * 100.0
        );
        match verdict {
            Verdict::Fits => format!("{asks}. It fits."),
            Verdict::Tight => format!(
                "warning: {asks}. It may run, but packets will be late at times; slower links or fewer hops help."
            ),
            Verdict::TooMuch => format!(
                "TOO MUCH: {asks}. Emulated results would show this machine instead of the network: make links \
                 slower, or simulate it with `run`."
            ),
        }
    }

    #[cfg(test)]
    mod tests {
        use bandmaster_core::span_cdf::SpanCdf;
        use bandmaster_core::time::Span;
        use bandmaster_linux::calibrate::{Capacity, DelayFit, LossFit, RateFit, WindowFit};

        use super::*;

        fn measured() -> Calibration {
            Calibration {
                load_before: Some(0.1),
                cores: 2,
                real_time: true,
                delay: DelayFit { packets: 3_000, p50: 25.05, p99: 25.3, max: 26.0 },
                lateness: SpanCdf::new(&[(Span::from_micros(4), 0.5), (Span::from_millis(1), 1.0)]).unwrap(),
                loss: LossFit {
                    rate: 25e4,
                    sent: 300_000,
                    unread: 0,
                    dropped: 0,
                    unreceived: 0,
                    delay: DelayFit { packets: 300_000, p50: 25.02, p99: 25.1, max: 26.0 },
                },
                rates: vec![RateFit {
                    asked: 5_000_000,
                    mean: 4_999_000.0,
                    windows: vec![WindowFit { window: 1.0, p99: 0.01, worst: 0.02 }],
                }],
                capacity: Capacity { offered: 2e5, carried: 8e4, core: 0.8 },
                bare: Capacity { offered: 2e5, carried: 1e5, core: 0.8 },
            }
        }

        #[test]
        fn goals_are_beside_what_was_measured() {
            let text = table(&measured(), None, None);
            assert!(
                text.contains("25.050 / 25.300 / 26.000 ms") && text.contains("p99 up to 25.2 ms"),
                "{text}"
            );
            assert!(text.contains("MISSED") && text.contains("reached"), "{text}");
            assert!(text.contains("jitter = \"cdf(4us 0.5, 1000us 1)\""), "{text}");
            assert!(text.contains("100000 packets/s, over all links"), "{text}");
            assert!(text.contains("125000 packets/s: what"), "{text}");
        }

        #[test]
        fn a_scenario_fits_is_tight_or_too_much() {
            let verdict = |packets| Demand { case: "base".to_owned(), packets }.judge(&measured());
            assert_eq!(verdict(50_000.0), Verdict::Fits);
            assert_eq!(verdict(50_001.0), Verdict::Tight);
            assert_eq!(verdict(100_001.0), Verdict::TooMuch);
            let demand = Demand { case: "base".to_owned(), packets: 2e5 };
            let document = json(&measured(), Some(&demand), Some(Verdict::TooMuch));
            assert_eq!(document["scenario"]["verdict"], "too-much");
            assert_eq!(
                (&document["goals"]["delay"], &document["goals"]["loss"]),
                (&json!(false), &json!(true))
            );
        }
    }
}

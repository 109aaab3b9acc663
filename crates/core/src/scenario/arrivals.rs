//! Flows that arrive one after the other, with drawn sizes: `size-cdf`, `arrivals` and `load`.

use super::model::{Arrivals, Transport};
use super::sources::Reader;
use crate::file::{Section, suggestion};
use crate::rng::SpanDraw;
use crate::sizes::{SHIPPED, SizeDistribution};
use crate::time::Span;
use crate::topology::Topology;

/// Most flows of a group that may be expected.
const MOST: f64 = 1e6;

/// The distribution that `size-cdf` names.
pub(super) fn size_cdf(reader: &mut Reader, section: &Section<'_>) -> Option<SizeDistribution> {
    if !section.has("size-cdf") {
        return None;
    }
    let name = section.text("size-cdf")?;
    for key in ["size", "rounds"] {
        if section.item(key).is_some() {
            reader.fail_key(section, "size-cdf", format!("conflicts with `{key}`; write one of them"));
            return None;
        }
    }
    if name.contains('.') {
        return reader.sizes(section, "size-cdf", &name);
    }
    let found = SizeDistribution::shipped(&name);
    if found.is_none() {
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        let message = format!("no distribution `{name}` ships");
        let hint = format!("{}; a file has a dot in its name", suggestion(&name, &names));
        reader.fail_key_with(section, "size-cdf", message, hint);
    }
    found
}

/// When flows arrive, by `arrivals` or `load`; none: once.
pub(super) fn arrivals(
    reader: &mut Reader,
    section: &Section<'_>,
    sizes: Option<&SizeDistribution>,
    transport: Option<&Transport>,
    topology: Option<&Topology>,
    duration: Option<Span>,
) -> Option<Arrivals> {
    if !section.has("arrivals") {
        return None;
    }
    let (written, load) = (section.item("arrivals").is_some(), section.float("load"));
    if !written && load.is_none() {
        return None;
    }
    for key in ["count", "rounds", "subflows", "start-per", "timeline", "on", "paths"] {
        if section.item(key).is_some() {
            reader.fail_key(section, key, "is not for flows that arrive by `arrivals` or `load`");
            return None;
        }
    }
    if section.item("size").is_none() && section.item("size-cdf").is_none() {
        let key = if written { "arrivals" } else { "load" };
        reader.fail_key(section, key, "needs `size` or `size-cdf`: flows without end would pile up");
        return None;
    }
    let (interval, key) = match (written, load) {
        (true, Some(_)) => {
            reader.fail_key(section, "load", "conflicts with `arrivals`; write one of them");
            return None;
        }
        (true, None) => (section.draw("arrivals")?, "arrivals"),
        (false, _) => {
            let mean = match sizes {
                Some(sizes) => sizes.mean(),
                None => section.bytes("size")?.get() as f64,
            };
            let topology = topology?;
            let rate = sender_rate(reader, section, topology)?;
            let Transport::Tcp { settings, .. } = transport? else { return None };
            let payload_rate = rate * settings.efficiency(topology.frame_overhead);
            let mean = Span::from_secs_f64(mean * 8.0 / (load? * payload_rate));
            (SpanDraw::Exponential { mean }, "load")
        }
    };
    let mean = interval.mean();
    let senders: usize = match topology {
        Some(topology) => {
            let members = |name: &String| topology.members(name).map_or(0, |members| members.len());
            section.list("from")?.iter().map(members).sum()
        }
        None => 1,
    };
    let expected = senders as f64 * duration.map_or(0.0, Span::as_secs_f64) / mean;
    if expected > MOST {
        let message = if mean > 0.0 {
            format!("makes some {expected:.0} flows; at most {MOST:.0}")
        } else {
            "\"0s\" would start flows without end at once".to_owned()
        };
        reader.fail_key(section, key, message);
        return None;
    }
    Some(Arrivals { interval })
}

/// The rate of the senders' first links, when it is one.
fn sender_rate(reader: &mut Reader, section: &Section<'_>, topology: &Topology) -> Option<f64> {
    let mut rate = None;
    for name in section.list("from")? {
        for node in topology.members(&name)? {
            let link = topology.links.iter().find(|link| link.a == node || link.b == node)?;
            let own = link.rate(link.a == node).bits_per_sec();
            if rate.is_some_and(|rate| rate != own) {
                let message =
                    "is of senders with links of different rates; write `arrivals`, or a group for each";
                reader.fail_key(section, "load", message);
                return None;
            }
            rate = Some(own);
        }
    }
    rate.map(|rate| rate as f64)
}

#[cfg(test)]
mod tests {
    use crate::scenario::{Options, parse};

    /// Mean time in milliseconds between flows that offer half of a link of 100 Mbit/s, ten full segments each.
    fn interval(network: &str, tcp: &str, mss: u32) -> f64 {
        let size = 10 * mss;
        let text = format!(
            "version = 1\nname = \"load\"\n[run]\nduration = \"1s\"\n\
             [network]\nbuilder = \"star\"\nsize = 2\nlink = {{ rate = \"100mbit\" }}\n{network}\n[tcp]\n{tcp}\n\
             [[flows]]\nname = \"requests\"\nfrom = \"hosts.0\"\nto = \"hosts.1\"\nsize = \"{size}B\"\nload = 0.5\n"
        );
        let study = parse("x.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let arrivals = study.cases[0].scenario.flows[0].arrivals.expect("flows arrive");
        arrivals.interval.mean() * 1e3
    }

    /// Ten frames take twice their time at the link's rate.
    #[test]
    fn load_is_of_the_payload_that_full_segments_carry() {
        for (network, tcp, mss, frame) in [
            ("", "", 1448, 1514.0),
            ("frame-overhead = \"0B\"", "", 1448, 1500.0),
            ("frame-overhead = \"0B\"", "mss = \"960B\"\ntimestamps = false", 960, 1000.0),
        ] {
            let (interval, expected) = (interval(network, tcp, mss), 2.0 * 10.0 * frame * 8.0 / 100e6 * 1e3);
            assert!((interval - expected).abs() < 1e-5, "{network} {tcp}: {interval} ms, not {expected}");
        }
    }
}

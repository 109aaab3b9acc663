//! Classes as a scenario states them, and what is wrong with them.

use super::super::dscp::{CODE_POINTS, code_point};
#[cfg(test)]
use crate::params::Value;
use crate::params::{Key, Kind, Limit, Params, key, keys};
use crate::units::{Bytes, Dimension, Rate};

/// Stands in a map of code points for "unshaped".
pub(super) const DIRECT: u8 = u8::MAX;

/// Linux's priorities: 0 to 7.
pub(super) const PRIORITIES: usize = 8;

const BURST: Key = key! {
    /// Burst at `rate`: bytes that may leave at once after silence
    "burst": Kind::Quantity(Dimension::Bytes), default "1600B", from "tc, with precise timers"
};
const CBURST: Key = key! {
    /// Burst at `ceil`: bytes that may leave at once after silence
    "cburst": Kind::Quantity(Dimension::Bytes), default "1600B", from "tc, with precise timers"
};

/// Keys of the queue.
pub(super) const KEYS: &[Key] = keys! {
    /// Most that may wait in each class without its own limit, and unshaped
    "limit": Kind::Limit, default "1000pkt", from "as fifo";
    /// Rate that the classes share
    "rate": Kind::Quantity(Dimension::Rate), required;
    /// Second limit of all classes together; absent: `rate`
    "ceil": Kind::Quantity(Dimension::Rate), optional;
    ..BURST;
    ..CBURST;
    /// Class of the code points that no class names; absent: they leave unshaped, before all others
    "default": Kind::Text, optional;
    /// Code points that leave unshaped, before all others
    "direct": Kind::Nested, optional;
    /// Classes; absent: one for everything
    "classes": Kind::Nested, optional;
};

/// Keys of a class.
pub const CLASS_KEYS: &[Key] = keys! {
    /// Name in `default` and for changes
    "name": Kind::Text, required;
    /// Code points of the class: 0 to 63, or names such as "ef" and "af41"
    "dscp": Kind::Nested, optional;
    /// Guaranteed rate
    "rate": Kind::Quantity(Dimension::Rate), required;
    /// Largest rate; above `rate` the class borrows; absent: `rate`
    "ceil": Kind::Quantity(Dimension::Rate), optional;
    /// Order of borrowing: the lowest number first
    "prio": Kind::Integer { min: 0, max: PRIORITIES as i64 - 1 }, default "0", from "Linux";
    /// Bytes per turn among classes of the same `prio`; absent: 0.1 s of `rate`, from 1000 to 200000 B (r2q 10)
    "quantum": Kind::Quantity(Dimension::Bytes), optional;
    ..BURST;
    ..CBURST;
    /// Most that may wait in the class; absent: `limit` of the queue
    "limit": Kind::Limit, optional;
};

/// What does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misfit {
    /// Position of the class; none: the queue itself.
    pub class: Option<usize>,
    /// The key.
    pub key: &'static str,
    /// What is wrong with its value.
    pub why: String,
}

/// A checked scenario's queue.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Plan {
    pub(super) root: Shape,
    pub(super) limit: Limit,
    pub(super) classes: Vec<Class>,
    /// Class per code point, or [`DIRECT`].
    pub(super) class_of: [u8; CODE_POINTS],
}

/// Rates and bursts of a class or of the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) rate: Rate,
    pub(super) ceil: Rate,
    pub(super) burst: Bytes,
    pub(super) cburst: Bytes,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) prio: u8,
    /// None: follows the rate.
    pub(super) quantum: Option<Bytes>,
    pub(super) limit: Limit,
}

/// What is wrong with the parameters of a queue with this discipline, classes included.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(params: &Params) -> Result<(), Misfit> {
    Plan::read(params).map(|_| ())
}

impl Plan {
    /// Reads the parameters of a queue.
    pub(super) fn read(params: &Params) -> Result<Self, Misfit> {
        let of_queue = |(key, why)| Misfit { class: None, key, why };
        let root = shape(params).map_err(of_queue)?;
        let limit = params.limit("limit");
        let mut code_points = [None; CODE_POINTS];
        if params.get("direct").is_some() {
            claim(&mut code_points, &params.list("direct"), DIRECT, &[])
                .map_err(|why| of_queue(("direct", why)))?;
        }
        let mut classes = Vec::new();
        let mut default = None;
        match params.get("classes") {
            None => {
                if let Some(name) = params.optional("default", Params::text) {
                    let why = format!("\"{name}\" is not a class: there are no `classes`");
                    return Err(of_queue(("default", why)));
                }
                default = Some(0);
                classes.push(Class { name: "all".to_owned(), shape: root, prio: 0, quantum: None, limit });
            }
            Some(_) => {
                for (at, own) in params.tables("classes").iter().enumerate() {
                    let of_class = |(key, why)| Misfit { class: Some(at), key, why };
                    let class = read_class(own, limit).map_err(of_class)?;
                    if classes.iter().any(|other: &Class| other.name == class.name) {
                        return Err(of_class(("name", format!("the name `{}` is taken", class.name))));
                    }
                    classes.push(class);
                    if own.get("dscp").is_some() {
                        let number = u8::try_from(at).unwrap_or(DIRECT);
                        claim(&mut code_points, &own.list("dscp"), number, &classes)
                            .map_err(|why| of_class(("dscp", why)))?;
                    }
                }
                if classes.is_empty() {
                    let why = "is empty; leave it out for one class that takes everything".to_owned();
                    return Err(of_queue(("classes", why)));
                }
                if let Some(name) = params.optional("default", Params::text) {
                    default = classes.iter().position(|class| class.name == name);
                    if default.is_none() {
                        let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
                        let why = format!("\"{name}\" is not a class; there are {}", names.join(", "));
                        return Err(of_queue(("default", why)));
                    }
                }
            }
        }
        let others = default.and_then(|at| u8::try_from(at).ok()).unwrap_or(DIRECT);
        let class_of = code_points.map(|class| class.unwrap_or(others));
        // So there are at most as many classes as code points.
        let is_found = |at: usize| class_of.iter().any(|class| usize::from(*class) == at);
        if let Some(at) = (0..classes.len()).find(|at| !is_found(*at)) {
            let (class, key, why) = match params.get("classes") {
                Some(_) => (Some(at), "dscp", "is missing: no packet would find the class"),
                None => (None, "direct", "leaves no code point to be shaped"),
            };
            return Err(Misfit { class, key, why: why.to_owned() });
        }
        let mut sum = 0u64;
        for (at, class) in classes.iter().enumerate() {
            sum = sum.saturating_add(class.shape.rate.bits_per_sec());
            if sum > root.rate.bits_per_sec() {
                let why = format!(
                    "\"{}\" makes {} with the classes before it: more than `rate` of the queue, {}",
                    class.shape.rate,
                    Rate::from_bits_per_sec(sum),
                    root.rate
                );
                return Err(Misfit { class: Some(at), key: "rate", why });
            }
        }
        Ok(Self { root, limit, classes, class_of })
    }
}

fn read_class(params: &Params, limit: Limit) -> Result<Class, (&'static str, String)> {
    let quantum = params.optional("quantum", Params::bytes);
    if quantum == Some(Bytes::ZERO) {
        return Err(("quantum", "\"0B\" is not a turn; leave it out for 0.1 s of `rate`".to_owned()));
    }
    Ok(Class {
        name: params.text("name"),
        shape: shape(params)?,
        prio: params.integer("prio").clamp(0, PRIORITIES as i64 - 1) as u8,
        quantum,
        limit: params.optional("limit", Params::limit).unwrap_or(limit),
    })
}

fn shape(params: &Params) -> Result<Shape, (&'static str, String)> {
    let rate = params.rate("rate");
    let ceil = params.optional("ceil", Params::rate).unwrap_or(rate);
    if rate == Rate::ZERO {
        return Err(("rate", format!("\"{rate}\" lets nothing leave")));
    }
    if ceil < rate {
        return Err(("ceil", format!("\"{ceil}\" is below `rate`, {rate}")));
    }
    Ok(Shape { rate, ceil, burst: params.bytes("burst"), cburst: params.bytes("cburst") })
}

/// Gives code points to a class, or to [`DIRECT`].
fn claim(
    code_points: &mut [Option<u8>; CODE_POINTS],
    names: &[String],
    class: u8,
    classes: &[Class],
) -> Result<(), String> {
    for name in names {
        let Some(dscp) = code_point(name) else {
            return Err(format!("\"{name}\" is not a code point, as 46, \"ef\", \"af41\" or \"cs6\""));
        };
        if let Some(owner) = code_points[usize::from(dscp)].replace(class) {
            let owner = match classes.get(usize::from(owner)) {
                Some(class) => format!("has class `{}`", class.name),
                None => "is `direct`".to_owned(),
            };
            return Err(format!("code point {name} {owner} already"));
        }
    }
    Ok(())
}

/// The discipline's own check, which knows the keys of the queue only.
pub(super) fn check_queue(params: &Params) -> Result<(), (&'static str, String)> {
    check(params).map_err(|misfit| match misfit.class {
        None => (misfit.key, misfit.why),
        Some(at) => ("classes", format!("class {at}: {}: {}", misfit.key, misfit.why)),
    })
}

/// Parameters of a class, for tests.
#[cfg(test)]
pub(super) fn class_params(name: &str, dscp: &[u8], rate: u64, ceil: u64) -> Params {
    let mut params = Params::defaults(CLASS_KEYS);
    params.set("name", Value::Text(name.to_owned()));
    params.set("dscp", Value::List(dscp.iter().map(u8::to_string).collect()));
    params.set("rate", Value::Rate(Rate::from_bits_per_sec(rate)));
    params.set("ceil", Value::Rate(Rate::from_bits_per_sec(ceil)));
    params
}

/// Parameters of a queue, for tests.
#[cfg(test)]
pub(super) fn queue_params(rate: u64, classes: Vec<Params>) -> Params {
    let mut params = Params::defaults(KEYS);
    params.set("rate", Value::Rate(Rate::from_bits_per_sec(rate)));
    if !classes.is_empty() {
        params.set("classes", Value::Tables(classes));
    }
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misfit(params: &Params) -> (Option<usize>, &'static str, String) {
        let Misfit { class, key, why } = check(params).expect_err("a misfit");
        (class, key, why)
    }

    #[test]
    fn code_points_find_their_class_the_default_or_go_unshaped() {
        let classes =
            vec![class_params("voice", &[46, 44], 300, 1_000), class_params("bulk", &[], 700, 1_000)];
        let mut params = queue_params(1_000, classes);
        params.set("default", Value::Text("bulk".to_owned()));
        params.set("direct", Value::List(vec!["cs6".to_owned()]));
        let plan = Plan::read(&params).expect("a plan");
        assert_eq!([46, 44, 48, 0, 63].map(|dscp: usize| plan.class_of[dscp]), [0, 0, DIRECT, 1, 1]);
        let mut params = queue_params(1_000, vec![class_params("voice", &[46], 300, 1_000)]);
        let plan = Plan::read(&params).expect("a plan");
        assert_eq!([46, 0].map(|dscp: usize| plan.class_of[dscp]), [0, DIRECT]);
        // Without classes, one has it all.
        params = queue_params(1_000, Vec::new());
        params.set("ceil", Value::Rate(Rate::from_bits_per_sec(2_000)));
        let plan = Plan::read(&params).expect("a plan");
        assert_eq!((plan.class_of, plan.classes[0].shape), ([0; CODE_POINTS], plan.root));
    }

    #[test]
    fn what_does_not_fit_is_said_where_it_stands() {
        let good = || {
            vec![class_params("a", &[46], 400_000, 1_000_000), class_params("b", &[0], 600_000, 1_000_000)]
        };
        assert_eq!(check(&queue_params(1_000_000, good())), Ok(()));
        let with = |at: usize, key: &'static str, value: Value| {
            let mut classes = good();
            classes[at].set(key, value);
            misfit(&queue_params(1_000_000, classes))
        };
        let rate = |bits| Value::Rate(Rate::from_bits_per_sec(bits));
        let why =
            "\"601kbit\" makes 1001kbit with the classes before it: more than `rate` of the queue, 1mbit";
        assert_eq!(with(1, "rate", rate(601_000)), (Some(1), "rate", why.to_owned()));
        let why = "\"599kbit\" is below `rate`, 600kbit";
        assert_eq!(with(1, "ceil", rate(599_000)), (Some(1), "ceil", why.to_owned()));
        assert_eq!(with(0, "rate", rate(0)).1, "rate");
        let why = "the name `a` is taken";
        assert_eq!(with(1, "name", Value::Text("a".to_owned())), (Some(1), "name", why.to_owned()));
        let list = |names: &[&str]| Value::List(names.iter().map(|n| (*n).to_owned()).collect());
        let why = "code point ef has class `a` already";
        assert_eq!(with(1, "dscp", list(&["8", "ef"])), (Some(1), "dscp", why.to_owned()));
        let why = "code point 8 has class `b` already";
        assert_eq!(with(1, "dscp", list(&["cs1", "8"])), (Some(1), "dscp", why.to_owned()));
        assert_eq!(with(1, "dscp", list(&["64"])).1, "dscp");
        let why = "is missing: no packet would find the class";
        assert_eq!(with(1, "dscp", list(&[])), (Some(1), "dscp", why.to_owned()));
        assert_eq!(with(0, "quantum", Value::Bytes(Bytes::ZERO)).1, "quantum");

        let mut params = queue_params(1_000_000, good());
        params.set("default", Value::Text("c".to_owned()));
        assert_eq!(misfit(&params), (None, "default", "\"c\" is not a class; there are a, b".to_owned()));
        params = queue_params(1_000_000, good());
        params.set("direct", list(&["46"]));
        let why = "code point 46 is `direct` already";
        assert_eq!(misfit(&params), (Some(0), "dscp", why.to_owned()));
        params = queue_params(1_000_000, Vec::new());
        params.set("classes", Value::Tables(Vec::new()));
        assert_eq!(misfit(&params).1, "classes");
        params = queue_params(1_000_000, Vec::new());
        params.set("default", Value::Text("a".to_owned()));
        assert_eq!(misfit(&params).1, "default");
        // Every code point unshaped: nothing for the class.
        params = queue_params(1_000_000, Vec::new());
        params.set("direct", Value::List((0..64).map(|dscp: u8| dscp.to_string()).collect()));
        assert_eq!((misfit(&params).0, misfit(&params).1), (None, "direct"));
        let many = (0..65).map(|i: u8| class_params(&i.to_string(), &[i % 64], 1, 1)).collect();
        assert_eq!((misfit(&queue_params(1_000, many)).0, check(&params).is_err()), (Some(64), true));
    }
}

//! Maps of real networks: GraphML as the Internet Topology Zoo has it (Knight, Nguyen, Falkner, Bowden, Roughan: The Internet
//! Topology Zoo, IEEE JSAC 29(9), 2011).
//!
//! Of nodes it takes `id`, and the data `label`, `Latitude` and `Longitude`; of edges `source`, `target`, and the data
//! `LinkSpeedRaw` in bit/s. Everything else is left alone.

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::{Document, Node, ParsingOptions};

use crate::time::Span;
use crate::units::Rate;

/// Most elements and texts of a file.
const MOST_NODES: u32 = 1 << 20;
/// Most elements inside each other: the parser calls itself for each.
const MOST_DEPTH: usize = 100;
/// Kilometres.
const EARTH_RADIUS: f64 = 6_371.0;
/// Of light in fibre, in km/s.
const FIBRE_SPEED: f64 = 200_000.0;

/// Routers and the links between them.
#[derive(Clone, PartialEq, Debug)]
pub struct Map {
    /// Routers, in the order of the file.
    pub sites: Vec<Site>,
    /// Links, in the order of the file; several may have the same ends.
    pub lines: Vec<Line>,
}

/// A router of a map.
#[derive(Clone, PartialEq, Debug)]
pub struct Site {
    /// Its name, unique: the label in letters, digits, `-` and `_`; with the id where another router has that name or there is none.
    pub name: String,
    /// Latitude and longitude in degrees, where the file has both.
    pub place: Option<(f64, f64)>,
}

/// A link of a map.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Line {
    /// Positions of its two routers, which differ.
    pub ends: [usize; 2],
    /// Its rate, where the file has one.
    pub rate: Option<Rate>,
}

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapError {
    /// Line from 1; none: the file as a whole.
    pub line: Option<u32>,
    /// What is wrong, and what is allowed.
    pub why: String,
}

impl Map {
    /// Reads a text.
    ///
    /// # Errors
    /// The first thing that is no XML, or no undirected graph with routers and links between them.
    pub fn parse(text: &str) -> Result<Self, MapError> {
        let whole = |why: &str| Err(MapError { line: None, why: why.to_owned() });
        if depth(text) > MOST_DEPTH {
            return whole("has too many elements inside each other; at most 100");
        }
        let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options)
            .map_err(|error| MapError { line: Some(error.pos().row), why: format!("is not XML: {error}") })?;
        let reading = Reading { document: &document };
        let root = document.root_element();
        let Some(graph) = children(root, "graph").next().filter(|_| is_called(root, "graphml")) else {
            return whole("has no <graphml> with a <graph>; write GraphML, as the Topology Zoo has it");
        };
        if graph.attribute("edgedefault") == Some("directed") {
            let why = "is a directed graph; links are duplex, so write edgedefault=\"undirected\"";
            return reading.wrong(graph, why);
        }
        let keys = Keys::of(root);
        let (mut sites, mut numbers, mut names) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        for node in children(graph, "node") {
            let id = reading.attribute(node, "id")?;
            if numbers.insert(id, sites.len()).is_some() {
                return reading.wrong(node, &format!("has the id \"{}\" of another node", shown(id)));
            }
            let label = keys.data(node, "node", "label").map_or("", |data| data.text().unwrap_or_default());
            let name = unique(label, id, &mut names);
            let place = match (keys.data(node, "node", "Latitude"), keys.data(node, "node", "Longitude")) {
                (Some(latitude), Some(longitude)) => {
                    Some((reading.number(latitude, 90.0)?, reading.number(longitude, 180.0)?))
                }
                _ => None,
            };
            sites.push(Site { name, place });
        }
        let mut lines = Vec::new();
        for edge in children(graph, "edge") {
            let end = |key: &str| {
                let id = reading.attribute(edge, key)?;
                match numbers.get(id) {
                    Some(number) => Ok(*number),
                    None => {
                        reading.wrong(edge, &format!("has the {key} \"{}\", which is no node", shown(id)))
                    }
                }
            };
            let ends = [end("source")?, end("target")?];
            if ends[0] == ends[1] {
                return reading.wrong(edge, &format!("links `{}` to itself", sites[ends[0]].name));
            }
            let rate = keys.data(edge, "edge", "LinkSpeedRaw").map(|data| reading.rate(data)).transpose()?;
            lines.push(Line { ends, rate });
        }
        if lines.is_empty() {
            return whole("has no <edge> in its <graph>");
        }
        Ok(Self { sites, lines })
    }

    /// Time that light in fibre takes over the great circle between the ends of a link; none where a place is not known.
    pub fn delay(&self, line: &Line) -> Option<Span> {
        let [from, to] = line.ends.map(|site| self.sites[site].place);
        Some(Span::from_secs_f64(distance(from?, to?) / FIBRE_SPEED))
    }
}

/// Great-circle distance in km between two places, by the haversine formula. The functions are libm's, the same on every platform.
fn distance((latitude, longitude): (f64, f64), (other_latitude, other_longitude): (f64, f64)) -> f64 {
    let half = |from: f64, to: f64| libm::sin((to - from).to_radians() / 2.0);
    let (north, east) = (half(latitude, other_latitude), half(longitude, other_longitude));
    let cosines = libm::cos(latitude.to_radians()) * libm::cos(other_latitude.to_radians());
    let chord = north * north + cosines * east * east;
    2.0 * EARTH_RADIUS * libm::asin(libm::sqrt(chord.clamp(0.0, 1.0)))
}

/// How deep elements are inside each other, at most; of a text that is no XML, up to where it stops being.
fn depth(text: &str) -> usize {
    let (mut rest, mut depth, mut most) = (text, 0_usize, 0);
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = if let Some(comment) = rest.strip_prefix("!--") {
            comment.find("-->").map(|end| end + 6)
        } else if rest.starts_with("![CDATA[") {
            rest.find("]]>").map(|end| end + 3)
        } else if rest.starts_with('?') {
            rest.find("?>").map(|end| end + 2)
        } else {
            end_of_tag(rest)
        };
        let Some(end) = end else { break };
        let tag = &rest[..end];
        if tag.starts_with('/') {
            depth = depth.saturating_sub(1);
        } else if !tag.starts_with(['!', '?']) {
            most = most.max(depth + 1);
            depth += usize::from(!tag.ends_with("/>"));
        }
        rest = &rest[end..];
    }
    most
}

/// Where the tag ends that `rest` is inside of; a `>` in quotes ends none.
fn end_of_tag(rest: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in rest.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), close) if open == close => quote = None,
            _ => {}
        }
    }
    None
}

fn is_called(node: Node<'_, '_>, name: &str) -> bool {
    node.is_element() && node.tag_name().name() == name
}

fn children<'a, 'input>(
    node: Node<'a, 'input>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(move |child| is_called(*child, name))
}

/// The `<key>` elements: by what they are for and their name, the id that data refer to.
struct Keys<'a>(BTreeMap<(&'a str, &'a str), &'a str>);

impl<'a> Keys<'a> {
    fn of<'input>(root: Node<'a, 'input>) -> Self {
        let key = |key: Node<'a, 'input>| {
            let name = (key.attribute("for")?, key.attribute("attr.name")?);
            Some((name, key.attribute("id")?))
        };
        Self(children(root, "key").filter_map(key).collect())
    }

    /// The `<data>` of `owner`, a node or an edge, with this name.
    fn data<'n, 'input>(&self, owner: Node<'n, 'input>, kind: &str, name: &str) -> Option<Node<'n, 'input>> {
        let id = self.0.get(&(kind, name)).copied()?;
        children(owner, "data").find(|data| data.attribute("key") == Some(id))
    }
}

/// Names the place of what is wrong.
struct Reading<'a, 'input> {
    document: &'a Document<'input>,
}

impl<'a, 'input> Reading<'a, 'input> {
    fn wrong<T>(&self, node: Node<'_, '_>, why: &str) -> Result<T, MapError> {
        let line = Some(self.document.text_pos_at(node.range().start).row);
        Err(MapError { line, why: format!("<{}> {why}", node.tag_name().name()) })
    }

    fn attribute(&self, node: Node<'a, 'input>, key: &str) -> Result<&'a str, MapError> {
        match node.attribute(key) {
            Some(value) => Ok(value),
            None => self.wrong(node, &format!("has no `{key}`")),
        }
    }

    /// A number from -`most` to `most`.
    fn number(&self, data: Node<'_, '_>, most: f64) -> Result<f64, MapError> {
        let text = data.text().unwrap_or_default().trim();
        match text.parse::<f64>() {
            Ok(number) if number.abs() <= most => Ok(number),
            _ => self.wrong(data, &format!("\"{}\" is not a number of degrees up to {most}", shown(text))),
        }
    }

    fn rate(&self, data: Node<'_, '_>) -> Result<Rate, MapError> {
        const MOST: f64 = 1e14;
        let text = data.text().unwrap_or_default().trim();
        match text.parse::<f64>() {
            Ok(rate) if (1.0..=MOST).contains(&rate) => Ok(Rate::from_bits_per_sec_f64(rate)),
            _ => self.wrong(data, &format!("\"{}\" is not a speed in bit/s, from 1 to 1e14", shown(text))),
        }
    }
}

/// A name that no router before has, of what is left of a label.
fn unique(label: &str, id: &str, names: &mut BTreeSet<String>) -> String {
    let kept = |text: &str| {
        let is_kept = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split(|c: char| !is_kept(c)).filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
    };
    let (label, id) = (kept(label), kept(id));
    let words = [label.as_str(), id.as_str()].into_iter().filter(|word| !word.is_empty());
    let long = words.collect::<Vec<_>>().join("-");
    let numbered = (2..).map(|number| format!("{long}-{number}"));
    let mut candidates = [label, long.clone()].into_iter().filter(|name| !name.is_empty()).chain(numbered);
    candidates.find(|name| names.insert(name.clone())).unwrap_or_default()
}

/// The start of a text that may be anything.
fn shown(text: &str) -> String {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", text[..end].escape_debug()),
        None => text.escape_debug().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(content: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n\
             <key attr.name=\"label\" attr.type=\"string\" for=\"node\" id=\"d1\" />\n\
             <key attr.name=\"Latitude\" attr.type=\"double\" for=\"node\" id=\"d2\" />\n\
             <key attr.name=\"Longitude\" attr.type=\"double\" for=\"node\" id=\"d3\" />\n\
             <key attr.name=\"label\" attr.type=\"string\" for=\"edge\" id=\"d4\" />\n\
             <key attr.name=\"LinkSpeedRaw\" attr.type=\"double\" for=\"edge\" id=\"d5\" />\n\
             <graph edgedefault=\"undirected\">\n{content}\n</graph>\n</graphml>\n"
        )
    }

    fn node(id: &str, label: &str, place: Option<(f64, f64)>) -> String {
        let place = place.map_or(String::new(), |(latitude, longitude)| {
            format!("<data key=\"d2\">{latitude}</data><data key=\"d3\">{longitude}</data>")
        });
        format!("<node id=\"{id}\"><data key=\"d1\">{label}</data>{place}</node>\n")
    }

    const EDGE: &str = "<edge source=\"0\" target=\"1\"><data key=\"d5\">10000000000.0</data></edge>\n";

    #[test]
    fn a_map_has_names_rates_and_delays() {
        let more = "<edge source=\"2\" target=\"1\"><data key=\"d4\">OC-3</data></edge>\n\
                    <edge source=\"2\" target=\"3\"/>";
        let text = graph(&format!(
            "{}{}{}{}{EDGE}{more}",
            node("0", "New York", Some((40.71, -74.01))),
            node("1", "Chicago, IL", Some((41.88, -87.63))),
            node("2", "New York", None),
            node("3", "?", None),
        ));
        let map = Map::parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
        let names: Vec<&str> = map.sites.iter().map(|site| site.name.as_str()).collect();
        assert_eq!(names, ["New-York", "Chicago-IL", "New-York-2", "3"]);
        let ends: Vec<[usize; 2]> = map.lines.iter().map(|line| line.ends).collect();
        assert_eq!(ends, [[0, 1], [2, 1], [2, 3]]);
        assert_eq!(map.lines[0].rate, Some(Rate::from_bits_per_sec(10_000_000_000)));
        assert_eq!((map.lines[1].rate, map.delay(&map.lines[1])), (None, None));
        // 1145 km, by tables of distances.
        let delay = map.delay(&map.lines[0]).map_or(0.0, Span::as_secs_f64) * 1e3;
        assert!((5.70..5.75).contains(&delay), "{delay} ms");
    }

    /// A quarter of the equator, and half a meridian over the pole.
    #[test]
    fn distances_are_of_great_circles() {
        let quarter = EARTH_RADIUS * core::f64::consts::FRAC_PI_2;
        assert!((distance((0.0, 0.0), (0.0, 90.0)) - quarter).abs() < 1e-6);
        assert!((distance((0.0, 30.0), (0.0, -150.0)) - 2.0 * quarter).abs() < 1e-3);
        assert!((distance((45.0, 0.0), (45.0, 180.0)) - quarter).abs() < 1e-6);
        assert_eq!(distance((12.0, 34.0), (12.0, 34.0)), 0.0);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let both = node("0", "a", None) + &node("1", "b", None);
        let after = |more: &str| graph(&format!("{both}{more}"));
        for (text, line, why) in [
            (String::new(), Some(1), "is not XML"),
            ("<graphml>\n<graph/>\n</graphm>".to_owned(), Some(3), "is not XML"),
            ("<html/>".to_owned(), None, "has no <graphml> with a <graph>"),
            (graph(&both), None, "has no <edge>"),
            (after("<edge source=\"0\" target=\"7\"/>"), Some(11), "<edge> has the target \"7\", which"),
            (after("<edge source=\"0\"/>"), Some(11), "<edge> has no `target`"),
            (after("<edge source=\"1\" target=\"1\"/>"), Some(11), "<edge> links `b` to itself"),
            (after(&node("1", "c", None)), Some(11), "<node> has the id \"1\" of another node"),
            (graph(&node("0", "a", Some((91.0, 0.0)))), Some(9), "<data> \"91\" is not a number of degrees"),
            (after(&EDGE.replace("10000000000.0", "10G")), Some(11), "<data> \"10G\" is not a speed"),
            (graph(EDGE).replace("undirected", "directed"), Some(8), "<graph> is a directed graph"),
            ("<a>".repeat(1_000_000), None, "has too many elements inside each other"),
        ] {
            let error = Map::parse(&text).expect_err(why);
            assert_eq!(error.line, line, "{error:?}");
            assert!(error.why.starts_with(why), "{error:?}");
        }
    }

    /// Comments, sections, instructions and quoted texts hide no element and make none.
    #[test]
    fn depth_is_of_elements() {
        for (text, expected) in [
            ("<a><b/><c><d></d></c></a>", 3),
            ("<a><!-- </a> <x><y> --><b x=\"</a>\" y='>'><c/></b></a>", 3),
            ("<a><![CDATA[</a>]]><b/></a>", 2),
            ("<?pi </a> ?><a/>", 1),
            ("<a><!-- <b>", 1),
            ("", 0),
        ] {
            assert_eq!(depth(text), expected, "{text}");
        }
    }
}

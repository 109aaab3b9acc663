//! What is known of a daemon: its last answer, what changed in it, and some numbers over time.

use std::collections::VecDeque;
use std::fmt::Display;
use std::time::{Duration, Instant};

use bandmaster_linux::{agent, controller, gateway, switch};
use serde::Serialize;

/// Values that a sparkline keeps.
const KEPT: usize = 60;

/// A number of a status that is drawn over time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Level {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    value: f64,
    /// The value is a sum, and its growth per second is drawn.
    is_sum: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    BitsPerSecond,
    Bytes,
    PerSecond,
    Count,
}

impl Unit {
    /// The value with its unit.
    pub(super) fn words(self, value: f64) -> String {
        match self {
            Self::BitsPerSecond => format!("{:.3} Mbit/s", value / 1e6),
            Self::Bytes => format!("{value:.0} B"),
            Self::PerSecond => format!("{value:.1} /s"),
            Self::Count => format!("{value:.0}"),
        }
    }
}

impl Level {
    fn now(name: &'static str, unit: Unit, value: u64) -> Self {
        Self { name, unit, value: value as f64, is_sum: false }
    }

    fn growth(name: &'static str, unit: Unit, value: u64) -> Self {
        Self { is_sum: true, ..Self::now(name, unit, value) }
    }

    /// Bits per second, of a sum of bytes.
    fn traffic(name: &'static str, bytes: u64) -> Self {
        Self::growth(name, Unit::BitsPerSecond, bytes.saturating_mul(8))
    }
}

/// A status with numbers that are worth a sparkline: three at most.
pub(crate) trait Watched: Display + Serialize + 'static {
    /// These numbers, in the same order each time.
    fn levels(&self) -> Vec<Level>;
}

impl Watched for gateway::Status {
    fn levels(&self) -> Vec<Level> {
        let sender = self.sender.iter().flat_map(|sender| {
            [
                Level::now("estimate", Unit::BitsPerSecond, sender.estimate),
                Level::traffic("data sent", sender.bytes),
            ]
        });
        let receiver = self.receiver.iter().map(|receiver| Level::traffic("received", receiver.bytes));
        sender.chain(receiver).collect()
    }
}

impl Watched for controller::Status {
    fn levels(&self) -> Vec<Level> {
        vec![
            Level::now("hosts heard", Unit::Count, self.hosts_heard),
            Level::growth("from hosts", Unit::PerSecond, self.messages),
            Level::growth("to hosts", Unit::PerSecond, self.sent),
        ]
    }
}

impl Watched for agent::Status {
    fn levels(&self) -> Vec<Level> {
        vec![
            Level::now("connections", Unit::Count, self.connections),
            Level::now("bounded", Unit::Count, self.bounded),
            Level::growth("messages", Unit::PerSecond, self.messages),
        ]
    }
}

impl Watched for switch::Status {
    fn levels(&self) -> Vec<Level> {
        let sum = |of: fn(&switch::PortStatus) -> u64| self.ports.iter().map(of).sum::<u64>();
        vec![
            Level::now("flows", Unit::Count, sum(|port| port.flows)),
            Level::now("windows", Unit::Bytes, sum(|port| port.windows)),
            Level::now("waiting", Unit::Bytes, sum(|port| port.backlog)),
        ]
    }
}

/// A daemon's answer.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) levels: Vec<Level>,
}

/// A word of a status, and whether it differs from the answer before.
pub(super) type Word = (String, bool);

/// A line of a status: its label and the words after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) label: String,
    pub(super) words: Vec<Word>,
}

impl Entry {
    /// A line of a status, whose label ends at two spaces, or at one after a long label.
    fn new(line: &str) -> Self {
        let (label, rest) = line.split_once("  ").or_else(|| line.split_once(' ')).unwrap_or((line, ""));
        let words = rest.trim_start().split(' ').map(|word| (word.to_owned(), false));
        Self { label: label.to_owned(), words: words.collect() }
    }

    /// Marks the words that differ from those of the `earlier` entry.
    fn mark(&mut self, earlier: Option<&Self>) {
        let earlier = earlier.map_or(&[][..], |earlier| earlier.words.as_slice());
        for (index, (word, is_new)) in self.words.iter_mut().enumerate() {
            *is_new = earlier.get(index).is_none_or(|(before, _)| *before != *word);
        }
    }
}

/// The values of a level over time.
#[derive(Clone, Debug)]
pub(super) struct Track {
    pub(super) level: Level,
    /// The newest last; none where a sum has no growth yet.
    pub(super) values: VecDeque<Option<f64>>,
}

impl Track {
    fn new(level: Level) -> Self {
        let value = (!level.is_sum).then_some(level.value);
        Self { level, values: VecDeque::from([value]) }
    }

    /// Takes the value after so much time. A sum that falls begins again.
    fn take(&mut self, level: Level, time: Duration) {
        let growth = (level.value - self.level.value) / time.as_secs_f64();
        let growth = (growth.is_finite() && growth >= 0.0).then_some(growth);
        self.values.push_back(if level.is_sum { growth } else { Some(level.value) });
        if self.values.len() > KEPT {
            self.values.pop_front();
        }
        self.level = level;
    }
}

/// What is known of a daemon.
#[derive(Clone, Default, Debug)]
pub(super) struct Known {
    /// First line of the last answer.
    pub(super) head: String,
    pub(super) entries: Vec<Entry>,
    pub(super) tracks: Vec<Track>,
    /// When the last answer arrived.
    pub(super) heard: Option<Instant>,
    /// Why the last question had none.
    pub(super) why: Option<String>,
}

impl Known {
    /// Takes what a question gave, which arrived at that time.
    pub(super) fn take(&mut self, at: Instant, answer: Result<Answer, String>) {
        match answer {
            Ok(answer) => self.take_answer(at, &answer),
            Err(why) => self.why = Some(why),
        }
    }

    fn take_answer(&mut self, at: Instant, Answer { text, levels }: &Answer) {
        let mut lines = text.lines();
        self.head = lines.next().unwrap_or_default().to_owned();
        let mut entries: Vec<Entry> = lines.map(Entry::new).collect();
        if self.heard.is_some() {
            self.mark(&mut entries);
        }
        self.entries = entries;
        self.take_levels(levels, self.heard.map_or(Duration::ZERO, |heard| at.duration_since(heard)));
        (self.heard, self.why) = (Some(at), None);
    }

    /// Marks what differs from the entries before: from the first with a label to the first with it, and so on.
    fn mark(&self, entries: &mut [Entry]) {
        for index in 0..entries.len() {
            let (before, rest) = entries.split_at_mut(index);
            let entry = &mut rest[0];
            let number = before.iter().filter(|other| other.label == entry.label).count();
            let mut earlier = self.entries.iter().filter(|other| other.label == entry.label);
            entry.mark(earlier.nth(number));
        }
    }

    fn take_levels(&mut self, levels: &[Level], time: Duration) {
        let names = |track: &Track| track.level.name;
        if self.tracks.iter().map(names).eq(levels.iter().map(|level| level.name)) {
            for (track, level) in self.tracks.iter_mut().zip(levels) {
                track.take(*level, time);
            }
        } else {
            self.tracks = levels.iter().copied().map(Track::new).collect();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A gateway that sends, after so many bytes.
    fn gateway(estimate: u64, bytes: u64) -> gateway::Status {
        let mut sender = gateway::SenderStatus::default();
        sender.state = gateway::State::Answering;
        (sender.estimate, sender.in_force) = (estimate, 9_500_000);
        sender.last_answer = Some(0.1);
        (sender.questions, sender.answers) = (bytes / 1000, bytes / 1000);
        (sender.packets, sender.bytes) = (bytes / 1000, bytes);
        sender.classes.push(gateway::ClassStatus {
            name: "video".to_owned(),
            need: 3_000_000,
            rate: 3_000_000,
            packets: 7,
            ..gateway::ClassStatus::default()
        });
        let mut status = gateway::Status::default();
        (status.name, status.process, status.uptime) = ("north".to_owned(), 42, 60.0);
        status.file = "/etc/bandmaster/north.toml".to_owned();
        (status.interface, status.peer) = ("wan0".to_owned(), "192.0.2.1".to_owned());
        status.counting = "in the kernel".to_owned();
        status.sender = Some(sender);
        status
    }

    fn answer(status: &impl Watched) -> Result<Answer, String> {
        Ok(Answer { text: status.to_string(), levels: status.levels() })
    }

    /// After two answers, a second apart, of a gateway that sends 125 kB/s.
    pub(crate) fn known() -> Known {
        let (mut known, begin) = (Known::default(), Instant::now());
        known.take(begin, answer(&gateway(10_000_000, 1_000_000)));
        known.take(begin + Duration::from_secs(1), answer(&gateway(5_000_000, 1_125_000)));
        known
    }

    /// Two lines with the same label are held against the first and the second of the answer before.
    #[test]
    fn words_that_changed_are_marked() {
        let said = |text: &str| Ok(Answer { text: text.to_owned(), levels: Vec::new() });
        let mut known = Known::default();
        known.take(Instant::now(), said("x\nport   a: 1 flow\nport   b: 1 flow"));
        let marked = |known: &Known| -> Vec<String> {
            let words = known.entries.iter().flat_map(|entry| &entry.words);
            words.filter(|(_, is_new)| *is_new).map(|(word, _)| word.clone()).collect()
        };
        assert!(marked(&known).is_empty());
        known.take(Instant::now(), said("x\nport   a: 1 flow\nport   b: 2 flows\nfault  gone"));
        assert_eq!(marked(&known), ["2", "flows", "gone"]);
    }

    #[test]
    fn labels_end_where_values_begin() {
        let of = |line| {
            let Entry { label, words } = Entry::new(line);
            (label, words.into_iter().map(|(word, _)| word).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of("cannot have  a window"), ("cannot have".to_owned(), "a window".to_owned()));
        assert_eq!(of("             a remark"), (String::new(), "a remark".to_owned()));
        assert_eq!(of("would_cue_all 3"), ("would_cue_all".to_owned(), "3".to_owned()));
    }

    #[test]
    fn sums_are_drawn_as_growth_and_begin_again() {
        let sum = |value| Level::growth("messages", Unit::PerSecond, value);
        let mut track = Track::new(sum(10));
        for value in [30, 5, 6] {
            track.take(sum(value), Duration::from_secs(2));
        }
        assert_eq!(track.values, [None, Some(10.0), None, Some(0.5)]);
        for value in 0..100 {
            track.take(sum(value), Duration::ZERO);
        }
        assert_eq!((track.values.len(), track.values.back()), (KEPT, Some(&None)));
    }

    #[test]
    fn every_daemon_has_at_most_three_levels() {
        let port = switch::PortStatus { flows: 2, backlog: 3, ..switch::PortStatus::default() };
        let mut switch = switch::Status::default();
        switch.ports = vec![port.clone(), port];
        let values = |levels: Vec<Level>| levels.iter().map(|level| level.value).collect::<Vec<_>>();
        assert_eq!(values(switch.levels()), [4.0, 0.0, 6.0]);
        assert_eq!(agent::Status::default().levels().len(), 3);
        assert_eq!(controller::Status::default().levels().len(), 3);
        let mut both = gateway(1, 2);
        both.receiver = Some(gateway::ReceiverStatus::default());
        assert_eq!(values(both.levels()), [1.0, 16.0, 0.0]);
    }
}

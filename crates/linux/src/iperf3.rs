//! Traffic by iperf3: a server and a client per flow, in the namespaces of the flow's ends.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bandmaster_core::scenario::{FlowGroup, Scenario, Transport};
use bandmaster_core::scheme::Act;
use bandmaster_core::time::Time;
use bandmaster_core::units::{Bytes, UDP_HEADERS};
use bandmaster_core::workload;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::Error;
use crate::address;
use crate::doctor::on_path;
use crate::limits::{Remarks, kernel_name};
use crate::netns::{LAB, Netns};
use crate::receipts::{Receipts, Watched};
use crate::traffic::{FlowState, LARGEST_FIXED, Stage, Traffic, user_mss};
use crate::workplan::Workplan;

/// Name of the program.
pub(crate) const PROGRAM: &str = "iperf3";
/// Port of every server, for its control connection too; each has an address of its own.
const PORT: u16 = 5201;
/// Port at the client's end of what carries the payload.
const DATA_PORT: u16 = 5202;
/// Bytes by which a TCP client says at first which test its connection belongs to.
const COOKIE: u64 = 37;
/// Most bytes of a write of a flow with a size: it ends with a whole one, and may begin one more.
const LARGEST_BLOCK: u64 = 16 << 10;
/// The least payload of a datagram: iperf3 puts its own numbers into it.
const LEAST_DATAGRAM: u64 = 16;
/// The largest segment that it takes.
const LARGEST_SEGMENT: u64 = 9 << 10;
/// Most flows: each takes two processes.
const MOST_FLOWS: usize = 128;
/// Paces without a limit of its own, in bit/s: the most that the kernel's 32 bits hold.
const NO_LIMIT: &str = "17179869176";
/// A receiver waits as long for data, in ms: a day.
const ANY_TIME: &str = "86400000";
/// What a server has until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// All flows of a trial by iperf3.
pub(crate) struct Iperf3 {
    program: PathBuf,
    flows: Vec<Flow>,
    receipts: Arc<Receipts>,
    /// Flows whose end nobody has heard of.
    ended: VecDeque<usize>,
}

struct Flow {
    server: Child,
    client: Option<Child>,
    /// Where and with what words the client runs.
    place: Netns,
    words: Vec<String>,
    stage: Stage,
}

/// Finds what iperf3 cannot express of what the lab can, and what will be otherwise.
///
/// # Errors
/// [`Error::Unfit`] with the first thing that it cannot; [`Error::Missing`] when there is no such program.
pub fn check(scenario: &Scenario) -> Result<Remarks, Error> {
    let refused = |what: String| Err(Error::Unfit(format!("{what}; `--traffic own` can")));
    for config in &scenario.schemes {
        if config.scheme.acts().any(|act| !matches!(act, Act::Probe | Act::SetClass)) {
            let name = config.scheme.name;
            return refused(format!(
                "schemes.{name}: the scheme acts at TCP connections, and iperf3 keeps its own to itself"
            ));
        }
    }
    for (i, link) in scenario.topology.links.iter().enumerate() {
        let counting =
            [("drop-packets", !link.drop_packets.is_empty()), ("loss-every", link.loss_every.is_some())];
        if let Some((key, _)) = counting.into_iter().find(|(_, is_set)| *is_set) {
            return refused(format!(
                "network.links, number {}: `{key}` counts packets, and iperf3's control connection adds some",
                i + 1
            ));
        }
    }
    for group in &scenario.flows {
        if let Some(why) = refusal(group) {
            return refused(format!("flows {}: {why}", group.name));
        }
    }
    let flows = workload::plan(&scenario.flows, &scenario.topology, &scenario.run, 0).len();
    if flows > MOST_FLOWS {
        return refused(format!("{flows} flows: iperf3 takes two processes each; at most {MOST_FLOWS}"));
    }
    find()?;
    Ok(vec![
        "traffic is iperf3's: a flow sends some round trips after its start, when both ends have agreed over the \
         network; its congestion window, timeouts and retransmissions are not known"
            .to_owned(),
    ])
}

fn find() -> Result<PathBuf, Error> {
    on_path(PROGRAM).ok_or_else(|| {
        Error::Missing(
            "there is no program iperf3 on PATH; install iperf3 (Debian: `apt install iperf3`), or use `--traffic own`"
                .to_owned(),
        )
    })
}

/// Why iperf3 cannot send as this group does, where the lab's own senders can; none when it can.
fn refusal(group: &FlowGroup) -> Option<String> {
    let text = |why: &str| Some(why.to_owned());
    if group.rounds.is_some() {
        return text("`rounds`: iperf3 sends once");
    }
    if group.on_off.is_some() {
        return text("`on` and `off`: iperf3 sends without pauses");
    }
    match &group.transport {
        Transport::Tcp { settings, .. } => {
            let (buffer, mss) = (settings.receive_buffer, user_mss(settings));
            if buffer.get() <= LARGEST_FIXED {
                return Some(format!(
                    "tcp.receive-buffer {buffer}: iperf3 bounds both ends' buffers or none; from {} they grow by \
                     themselves",
                    Bytes::new(LARGEST_FIXED + 1)
                ));
            }
            (mss > LARGEST_SEGMENT).then(|| {
                format!(
                    "tcp.mss {}: iperf3 takes {LARGEST_SEGMENT} B at most, options included",
                    settings.mss
                )
            })
        }
        Transport::Udp { packet, jitter, .. } => {
            if *jitter > 0.0 {
                return text("`jitter`: iperf3 sends at a constant rate");
            }
            let least = LEAST_DATAGRAM + u64::from(UDP_HEADERS);
            (packet.get() < least).then(|| {
                format!("packet {packet}: iperf3 needs {least} B, of them {LEAST_DATAGRAM} B of payload")
            })
        }
    }
}

/// A flow with a size ends when its receiver has all of it. Of an iperf3 that sends the server closes at the client's
/// word, which overtakes what waits in the sender's socket; so here the client receives.
fn client_receives(size: Option<u64>) -> bool {
    size.is_some()
}

/// Addresses of server and client of flow `i`.
fn ends(i: usize, size: Option<u64>) -> (Ipv4Addr, Ipv4Addr) {
    let (sender, receiver) = (address::sender(i), address::receiver(i));
    if client_receives(size) { (sender, receiver) } else { (receiver, sender) }
}

fn server_words(i: usize, size: Option<u64>) -> Vec<String> {
    let (here, _) = ends(i, size);
    let mut words = format!("-s -1 -B {here} -p {PORT} -i 0 --forceflush");
    if !client_receives(size) {
        words += &format!(" --rcv-timeout {ANY_TIME}");
    }
    words.split(' ').map(str::to_owned).collect()
}

fn client_words(i: usize, group: &FlowGroup, size: Option<u64>) -> Vec<String> {
    let (there, here) = ends(i, size);
    let mut words = format!("-c {there} -B {here} -p {PORT} --cport {DATA_PORT} -i 0 -S {}", group.dscp << 2);
    match &group.transport {
        Transport::Tcp { settings, .. } => {
            words += &format!(" -C {} -M {}", kernel_name(&settings.congestion_control), user_mss(settings));
            if settings.pacing {
                words += &format!(" --fq-rate {NO_LIMIT}");
            }
            match size {
                Some(size) => {
                    let blocks = size.div_ceil(LARGEST_BLOCK).max(1);
                    let block = size.div_ceil(blocks).max(1);
                    words += &format!(" -R -n {} -l {block} --rcv-timeout {ANY_TIME}", blocks * block);
                }
                None => words += " -t 0",
            }
        }
        Transport::Udp { rate, packet, .. } => {
            // It counts payload.
            let payload = packet.get() - u64::from(UDP_HEADERS);
            let bits = u128::from(rate.bits_per_sec()) * u128::from(payload) / u128::from(packet.get());
            words += &format!(" -u -b {} -l {payload} -t 0", bits.max(1));
        }
    }
    words.split(' ').map(str::to_owned).collect()
}

fn watched(plan: &Workplan, i: usize, group: &FlowGroup) -> Watched {
    let size = plan.sizes[i];
    let datagram = match &group.transport {
        Transport::Tcp { .. } => None,
        Transport::Udp { packet, .. } => Some(packet.get()),
    };
    Watched {
        leave: plan.ack_routes[i].first().copied().unwrap_or(u32::MAX),
        come: plan.data_routes[i].last().copied().unwrap_or(u32::MAX),
        port: DATA_PORT,
        datagram,
        preamble: if client_receives(size) { 0 } else { COOKIE },
        size,
    }
}

impl Iperf3 {
    /// Starts the servers of all flows and waits until they listen.
    pub(crate) fn open(scenario: &Scenario, plan: &Workplan, nodes: &[Netns]) -> Result<Self, Error> {
        let group = |i: usize| plan.flows[i].group(&scenario.flows);
        let receipts = Receipts::new((0..plan.flows.len()).map(|i| watched(plan, i, group(i))));
        let mut all = Self {
            program: find()?,
            flows: Vec::with_capacity(plan.flows.len()),
            receipts: Arc::new(receipts),
            ended: VecDeque::new(),
        };
        for (i, flow) in plan.flows.iter().enumerate() {
            let (sender, receiver) = (&nodes[flow.src.index()], &nodes[flow.dst.index()]);
            let (at_server, at_client) =
                if client_receives(plan.sizes[i]) { (sender, receiver) } else { (receiver, sender) };
            let mut command = Command::new(&all.program);
            command.args(server_words(i, plan.sizes[i])).stdout(Stdio::piped());
            let server = spawn(command, at_server)
                .map_err(|error| Error::os(format!("start the iperf3 server of {}", group(i).name), error))?;
            all.flows.push(Flow {
                server,
                client: None,
                place: at_client.clone(),
                words: client_words(i, group(i), plan.sizes[i]),
                stage: Stage::default(),
            });
        }
        for (i, flow) in all.flows.iter_mut().enumerate() {
            wait_until_it_listens(&mut flow.server).map_err(|why| {
                Error::Missing(format!(
                    "the iperf3 server of flow {i} ({}) does not listen: {why}",
                    group(i).name
                ))
            })?;
        }
        Ok(all)
    }

    /// What the forwarder notes for it.
    pub(crate) fn receipts(&self) -> Arc<Receipts> {
        self.receipts.clone()
    }
}

impl Traffic for Iperf3 {
    fn serve(&mut self, _now: Time) {
        for (i, flow) in self.flows.iter_mut().enumerate().filter(|(_, flow)| flow.stage.is_receiving()) {
            if self.receipts.of(i).finished_at.is_some() {
                flow.stage.ended = true;
                self.ended.push_back(i);
            }
        }
    }

    fn start(&mut self, i: usize, _now: Time) {
        let flow = &mut self.flows[i];
        (flow.stage.started, flow.stage.on) = (true, true);
        let mut command = Command::new(&self.program);
        command.args(&flow.words).stdout(Stdio::null());
        match spawn(command, &flow.place) {
            Ok(client) => flow.client = Some(client),
            Err(error) => flow.stage.failed = Some(format!("cannot start iperf3: {error}")),
        }
    }

    /// Breaks it off: iperf3 itself knows whole seconds only.
    fn stop(&mut self, i: usize) {
        let flow = &mut self.flows[i];
        flow.note_failure();
        (flow.stage.stopped, flow.stage.on) = (true, false);
        flow.end();
        if flow.stage.started && !mem::replace(&mut flow.stage.ended, true) {
            self.ended.push_back(i);
        }
    }

    fn set_on(&mut self, i: usize, on: bool, _now: Time) {
        self.flows[i].stage.on = on;
    }

    fn stage(&self, i: usize) -> &Stage {
        &self.flows[i].stage
    }

    fn state(&self, i: usize) -> FlowState {
        self.receipts.of(i)
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn next_ended(&mut self) -> Option<usize> {
        self.ended.pop_front()
    }

    fn failures(&mut self) -> Vec<(usize, String)> {
        let flows = self.flows.iter_mut().enumerate();
        flows
            .filter_map(|(i, flow)| {
                flow.note_failure();
                Some((i, flow.stage.failed.clone()?))
            })
            .collect()
    }
}

impl Flow {
    /// Notes why a client failed when it ended before it was stopped. One that ended well has sent everything.
    fn note_failure(&mut self) {
        if let Some(client) = &mut self.client
            && !self.stage.stopped
            && let Ok(Some(status)) = client.try_wait()
            && !status.success()
        {
            let why = last_words(client).unwrap_or_else(|| format!("iperf3 ended with {status}"));
            self.stage.failed.get_or_insert(why);
        }
    }

    fn end(&mut self) {
        for process in self.client.iter_mut().chain([&mut self.server]) {
            // The process may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(mut command: Command, place: &Netns) -> io::Result<Child> {
    command.stdin(Stdio::null()).stderr(Stdio::piped()).env(LAB, place.name());
    place.enter(|| Ok(command.spawn())).map_err(io::Error::other)?
}

/// Reads what a server says until it listens; the error is why it does not.
fn wait_until_it_listens(server: &mut Child) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let (mut said, mut buffer) = (Vec::new(), [0; 512]);
    while !String::from_utf8_lossy(&said).contains("listening") {
        let Some(out) = &mut server.stdout else { return Err("its output is gone".to_owned()) };
        let left = TimeSpec::from_duration(deadline.saturating_duration_since(Instant::now()));
        let mut waiting = [PollFd::new(out.as_fd(), PollFlags::POLLIN)];
        let got = match ppoll(&mut waiting, Some(left), None) {
            Ok(0) => return Err(format!("it has printed nothing for {} s", PATIENCE.as_secs())),
            Ok(_) => out.read(&mut buffer).map_err(|error| error.to_string())?,
            Err(nix::Error::EINTR) => continue,
            Err(errno) => return Err(errno.to_string()),
        };
        if got == 0 {
            return Err(last_words(server).unwrap_or_else(|| "it has ended".to_owned()));
        }
        said.extend_from_slice(&buffer[..got]);
    }
    Ok(())
}

/// The last line of what a process that has ended wrote to stderr.
fn last_words(process: &mut Child) -> Option<String> {
    let mut text = String::new();
    process.stderr.take()?.read_to_string(&mut text).ok()?;
    Some(text.lines().rfind(|line| !line.trim().is_empty())?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::{Options, parse};

    use super::*;

    fn scenario(link: &str, flow: &str) -> Scenario {
        let text = format!(
            "version = 1\nname = \"one\"\n[run]\nduration = \"2s\"\n[network]\nhosts = [\"a\", \"b\"]\nrouters = [\"r\"]\n\
             [[network.links]]\nends = [\"a\", \"r\"]\nrate = \"10mbit\"\ndelay = \"1ms\"\n{link}\n\
             [[network.links]]\nends = [\"r\", \"b\"]\nrate = \"10mbit\"\ndelay = \"1ms\"\n\
             [[flows]]\nname = \"one\"\nfrom = \"a\"\nto = \"b\"\n{flow}\n"
        );
        let mut study = parse("test.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        study.cases.remove(0).scenario
    }

    fn words(flow: &str) -> (String, String) {
        let scenario = scenario("", flow);
        let plan = Workplan::new(&scenario, 0).unwrap_or_else(|e| panic!("{e}"));
        let (group, size) = (&scenario.flows[0], plan.sizes[0]);
        (server_words(4, size).join(" "), client_words(4, group, size).join(" "))
    }

    #[test]
    fn a_flow_without_end_is_sent_by_the_client() {
        let (server, client) = words("dscp = 46\ntcp = { congestion-control = \"newreno\" }");
        assert_eq!(server, "-s -1 -B 10.0.0.5 -p 5201 -i 0 --forceflush --rcv-timeout 86400000");
        assert_eq!(client, "-c 10.0.0.5 -B 10.128.0.5 -p 5201 --cport 5202 -i 0 -S 184 -C reno -M 1460 -t 0");
        let (_, paced) = words("tcp = { pacing = true, timestamps = false }");
        assert!(paced.ends_with("-C cubic -M 1448 --fq-rate 17179869176 -t 0"), "{paced}");
    }

    /// 62 writes of 16130 bytes are 1,000,060.
    #[test]
    fn a_flow_with_a_size_is_fetched_by_the_client() {
        let (server, client) = words("size = \"1000000B\"");
        assert_eq!(server, "-s -1 -B 10.128.0.5 -p 5201 -i 0 --forceflush");
        assert!(client.starts_with("-c 10.128.0.5 -B 10.0.0.5 -p 5201 --cport 5202"), "{client}");
        assert!(client.ends_with("-R -n 1000060 -l 16130 --rcv-timeout 86400000"), "{client}");
        let (_, small) = words("size = \"5B\"");
        assert!(small.contains("-R -n 5 -l 5 "), "{small}");
    }

    #[test]
    fn a_rate_is_given_in_payload() {
        let (server, client) = words("transport = \"udp\"\nrate = \"2mbit\"\npacket = \"1000B\"");
        assert_eq!(server, "-s -1 -B 10.0.0.5 -p 5201 -i 0 --forceflush --rcv-timeout 86400000");
        assert!(client.ends_with("-i 0 -S 0 -u -b 1944000 -l 972 -t 0"), "{client}");
    }

    #[test]
    fn what_iperf3_cannot_express_is_refused_by_name() {
        let udp = "transport = \"udp\"\nrate = \"1mbit\"";
        for (link, flow, named) in [
            (
                "",
                "on = \"1s\"\noff = \"1s\"".to_owned(),
                "flows one: `on` and `off`: iperf3 sends without pauses",
            ),
            ("", "tcp = { receive-buffer = \"64KiB\" }".to_owned(), "flows one: tcp.receive-buffer 64KiB"),
            ("", "tcp = { mss = \"9300B\" }".to_owned(), "flows one: tcp.mss"),
            ("", format!("{udp}\njitter = 0.5"), "flows one: `jitter`"),
            ("", format!("{udp}\npacket = \"40B\""), "flows one: packet 40B"),
            ("", "count = 129".to_owned(), "129 flows: iperf3 takes two processes each; at most 128"),
            ("drop-packets = [3]", String::new(), "network.links, number 1: `drop-packets`"),
            ("loss-every = 100", String::new(), "network.links, number 1: `loss-every`"),
        ] {
            match check(&scenario(link, &flow)) {
                Err(Error::Unfit(what)) => assert!(what.starts_with(named), "{flow}: {what}"),
                other => panic!("{flow}: {other:?}"),
            }
        }
        let plain = check(&scenario("", "size = \"10kB\""));
        assert!(matches!(plain, Ok(_) | Err(Error::Missing(_))), "{plain:?}");
    }
}

//! Senders and receivers of the lab: real sockets of one thread, each in the namespace of its node.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use bandmaster_core::control::FlowEnd;
use bandmaster_core::id::NodeId;
use bandmaster_core::scenario::{FlowGroup, Scenario, TcpSettings, Transport};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Bytes, Rate, UDP_HEADERS};
use bandmaster_core::workload::Jitter;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, Protocol, Socket, Type};

use crate::Error;
use crate::address;
use crate::limits::{kernel_name, sets_windows};
use crate::netns::Netns;
use crate::syscall::{self, TcpInfo};
use crate::workplan::Workplan;

/// Port of every receiver; each has an address of its own.
const PORT: u16 = 5001;
/// Payload that a TCP sender writes ahead of what the kernel has sent: little is left to send after a stop, and at
/// 100 Mbit/s it lasts 2.6 ms.
const WRITTEN_AHEAD: i32 = 32 << 10;
/// Receive buffers up to this size are fixed; larger ones grow by themselves, as Linux does it.
pub(crate) const LARGEST_FIXED: u64 = 1 << 20;
/// Faster than any link: asks for pacing without a limit of its own.
const NO_LIMIT: i32 = i32::MAX;
/// Zeros to send.
static PAYLOAD: [u8; 1 << 16] = [0; 1 << 16];

/// Senders and receivers of all flows of a trial.
pub(crate) trait Traffic {
    /// Becomes readable when there is something to serve.
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Does what there is to do.
    fn serve(&mut self, now: Time);

    /// A flow starts.
    fn start(&mut self, i: usize, now: Time);

    /// A flow stops for good.
    fn stop(&mut self, i: usize);

    /// A flow goes on or off.
    fn set_on(&mut self, i: usize, on: bool, now: Time);

    /// How far a flow is.
    fn stage(&self, i: usize) -> &Stage;

    /// Sends the datagrams of a UDP flow that are due, and says when the next is; none while it is off, or when nobody
    /// has to ask.
    fn send_due(&mut self, _i: usize, _now: Time) -> Option<Time> {
        None
    }

    /// What a flow has come to.
    fn state(&self, i: usize) -> FlowState;

    /// The port of every receiver.
    fn port(&self) -> u16 {
        PORT
    }

    /// True when the kernel can be asked about the senders' sockets.
    fn has_sockets(&self) -> bool {
        false
    }

    /// What the kernel tells of a TCP flow's sender; none before it has started.
    fn info(&self, _i: usize) -> Option<TcpInfo> {
        None
    }

    /// The same of its receiver.
    fn receiver_info(&self, _i: usize) -> Option<TcpInfo> {
        None
    }

    /// The next flow whose receiver has read all of it.
    fn next_ended(&mut self) -> Option<usize>;

    /// The next flow whose receiver has read what the connection, which stays, was [given](Self::give).
    fn next_complete(&mut self) -> Option<usize> {
        None
    }

    /// A connection that stays gets its size once more to send; after the last time it ends.
    fn give(&mut self, _i: usize, _is_last: bool) {}

    /// A TCP flow that has ended can be started again, over a new connection.
    fn renew(&mut self, i: usize, _group: &FlowGroup, _host: &Netns) -> Result<(), Error> {
        Err(Error::Missing(format!("nobody can open flow {i} again")))
    }

    /// The kernel's number of the connection at an end of a TCP flow; none while there is none.
    fn cookie(&self, _i: usize, _end: FlowEnd) -> Option<u64> {
        None
    }

    /// Bounds the window that the receiver of a TCP flow offers, to a segment at least.
    fn set_window(&mut self, i: usize, _window: Bytes) -> Result<(), Error> {
        Err(Error::Missing(format!("nobody can bound the window of flow {i}")))
    }

    /// Paces the sender of a TCP flow at a rate of payload.
    fn set_rate(&mut self, i: usize, _rate: Rate) -> Result<(), Error> {
        Err(Error::Missing(format!("nobody can pace flow {i}")))
    }

    /// Flows that could not connect or were broken off, with the reason.
    fn failures(&mut self) -> Vec<(usize, String)>;

    /// Datagrams that their nodes had no room for, as far as known.
    fn refused_datagrams(&self) -> u64 {
        0
    }
}

/// Our own: sockets that the lab serves.
pub(crate) struct Sockets {
    flows: Vec<Flow>,
    epoll: Epoll,
    tcp_flows: usize,
    /// Flows whose end nobody has heard of.
    ended: VecDeque<usize>,
    /// Flows that stay, of whose latest data nobody has heard.
    complete: VecDeque<usize>,
}

/// What is known of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FlowState {
    /// Payload bytes received in order.
    pub(crate) received: u64,
    /// Datagrams received.
    pub(crate) datagrams: u64,
    /// When a flow of limited size was complete.
    pub(crate) finished_at: Option<Time>,
    /// When the receiver had read all of a connection that its sender closed.
    pub(crate) ended_at: Option<Time>,
}

/// How far a flow is.
#[derive(Default)]
pub(crate) struct Stage {
    pub(crate) started: bool,
    /// It has its turn to send, by on and off times.
    pub(crate) on: bool,
    pub(crate) stopped: bool,
    /// The receiver has read all that there was.
    pub(crate) ended: bool,
    /// Why it could not connect, or was broken off.
    pub(crate) failed: Option<String>,
}

impl Stage {
    /// The receiver knows of the flow and has not read all of it.
    pub(crate) fn is_receiving(&self) -> bool {
        self.started && !self.ended
    }

    /// The sender may have something to send.
    pub(crate) fn is_sending(&self) -> bool {
        self.is_receiving() && !self.stopped
    }
}

struct Flow {
    sender: Socket,
    /// For TCP: the listener until the connection is accepted.
    receiver: Socket,
    /// The listener after that, of flows that are opened again.
    listener: Option<Socket>,
    connected: bool,
    destination: SocketAddr,
    kind: Kind,
    /// Payload bytes of a full segment.
    segment: u64,
    state: FlowState,
    stage: Stage,
    /// Why an earlier connection failed.
    failure: Option<String>,
    /// A scheme's bound on the receiver's window.
    window: Option<i32>,
}

/// What comes after the data of a TCP flow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    /// Nothing.
    One,
    /// Other connections of the same flow.
    Anew,
    /// More data.
    Kept,
}

impl Turns {
    /// What a connection has to send when it begins, of `size`: one that is kept is given its first data by the round.
    fn first(self, size: Option<u64>) -> Option<u64> {
        if self == Self::Kept { Some(0) } else { size }
    }
}

enum Kind {
    Tcp {
        /// Bytes still to write; none: without end.
        left: Option<u64>,
        size: Option<u64>,
        /// Opens a connection for each of several rounds, or keeps one for all.
        turns: Turns,
        /// On one that is kept: payload that will have come when the round ends, and whether nothing follows.
        target: u64,
        is_last: bool,
        /// What the kernel counted of earlier connections.
        past: TcpInfo,
    },
    Udp {
        payload: usize,
        rate: u64,
        /// Bits of a packet.
        bits: u64,
        on_since: Time,
        sent: u64,
        /// How much after its turn the next packet leaves, and where that is drawn.
        late: Span,
        jitter: Option<Jitter>,
        /// Packets that the node had no room for.
        refused: u64,
    },
}

/// Which socket of a flow.
const SENDER: u64 = 0;
const RECEIVER: u64 = 1;

impl Sockets {
    /// Opens the sockets of every flow in the namespaces of their nodes.
    pub(crate) fn open(
        scenario: &Scenario,
        trial: u32,
        plan: &Workplan,
        nodes: &[Netns],
    ) -> Result<Self, Error> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|errno| Error::os("wait for sockets", errno.into()))?;
        let bounded = scenario.schemes.iter().any(|config| sets_windows(config.scheme));
        // One thread per node, not per flow.
        let mut receivers: Vec<Option<Socket>> = plan.flows.iter().map(|_| None).collect();
        let mut senders: Vec<Option<Socket>> = plan.flows.iter().map(|_| None).collect();
        for (n, netns) in nodes.iter().enumerate() {
            let node = NodeId(n as u32);
            let here = plan.flows.iter().enumerate().filter(|(_, flow)| flow.src == node || flow.dst == node);
            let here: Vec<usize> = here.map(|(i, _)| i).collect();
            if here.is_empty() {
                continue;
            }
            let opened = netns.enter(|| {
                let mut opened = Vec::new();
                for &i in &here {
                    let (flow, group) = (&plan.flows[i], plan.flows[i].group(&scenario.flows));
                    if flow.dst == node {
                        opened.push((i, RECEIVER, attempt(i, group, || open_receiver(i, group, bounded))?));
                    }
                    if flow.src == node {
                        opened.push((i, SENDER, attempt(i, group, || open_sender(i, group))?));
                    }
                }
                Ok(opened)
            })?;
            for (i, end, socket) in opened {
                let place = if end == SENDER { &mut senders[i] } else { &mut receivers[i] };
                *place = Some(socket);
            }
        }
        let mut flows = Vec::with_capacity(plan.flows.len());
        for (i, (sender, receiver)) in senders.into_iter().zip(receivers).enumerate() {
            let (Some(sender), Some(receiver)) = (sender, receiver) else {
                return Err(Error::Missing(format!("flow {i} has no namespace at one of its ends")));
            };
            let jitter = Jitter::new(&plan.flows[i], scenario, trial);
            let group = plan.flows[i].group(&scenario.flows);
            let flow = Flow::new(i, group, plan.sizes[i], jitter, sender, receiver);
            for (end, socket) in [(SENDER, &flow.sender), (RECEIVER, &flow.receiver)] {
                watch(&epoll, socket, i, end)?;
            }
            flows.push(flow);
        }
        let (ended, complete) = (VecDeque::new(), VecDeque::new());
        Ok(Self { flows, epoll, tcp_flows: plan.tcp_flows, ended, complete })
    }

    fn read(&mut self, i: usize, now: Time) {
        let flow = &mut self.flows[i];
        if i >= self.tcp_flows {
            let mut first = [0; 1];
            while (&flow.receiver).read(&mut first).is_ok() {
                flow.state.datagrams += 1;
            }
            return;
        }
        if !flow.connected {
            match flow.receiver.accept() {
                Ok((connection, _)) => {
                    let ready = connection
                        .set_nonblocking(true)
                        .map_err(|error| Error::os("take a connection", error))
                        .and_then(|()| watch(&self.epoll, &connection, i, RECEIVER));
                    if let Err(error) = ready {
                        flow.stage.failed = Some(error.to_string());
                        return;
                    }
                    let listener = std::mem::replace(&mut flow.receiver, connection);
                    if let Kind::Tcp { turns: Turns::Anew, .. } = flow.kind {
                        flow.listener = Some(listener);
                    }
                    flow.connected = true;
                    // A window set before the connection existed applies now.
                    let _ = flow.bound_window();
                }
                Err(_) => return,
            }
        }
        let before = flow.state.received;
        loop {
            match syscall::discard(&flow.receiver) {
                Ok(0) => {
                    // Once: shutting down is an event of its own.
                    if !std::mem::replace(&mut flow.stage.ended, true) {
                        flow.state.ended_at = Some(now);
                        // Its own direction is empty: nothing is left to say.
                        let _ = flow.receiver.shutdown(Shutdown::Both);
                        self.ended.push_back(i);
                    }
                    break;
                }
                Ok(got) => {
                    if flow.state.received == 0 {
                        // The kernel recomputes the window when it learns the segment size.
                        let _ = flow.bound_window();
                    }
                    flow.state.received += got as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        flow.stage.failed.get_or_insert_with(|| error.to_string());
                    }
                    break;
                }
            }
        }
        match flow.kind {
            Kind::Tcp { size: Some(size), turns: Turns::One, .. } if flow.state.received >= size => {
                flow.state.finished_at.get_or_insert(now);
            }
            Kind::Tcp { turns: Turns::Kept, target, .. }
                if (before + 1..=flow.state.received).contains(&target) =>
            {
                self.complete.push_back(i);
            }
            _ => {}
        }
    }
}

impl Sockets {
    /// A connection that could not be made, or was broken off, has ended for the schemes too.
    fn end_if_failed(&mut self, i: usize) {
        let stage = &mut self.flows[i].stage;
        if stage.failed.is_some() && !std::mem::replace(&mut stage.ended, true) {
            self.ended.push_back(i);
        }
    }
}

impl Traffic for Sockets {
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.0.as_fd())
    }

    fn serve(&mut self, now: Time) {
        let mut events = [EpollEvent::empty(); 128];
        while let Ok(n) = self.epoll.wait(&mut events, EpollTimeout::ZERO)
            && n > 0
        {
            for event in &events[..n] {
                let (i, end) = ((event.data() >> 1) as usize, event.data() & 1);
                if end == SENDER {
                    self.flows[i].write();
                } else {
                    self.read(i, now);
                }
                self.end_if_failed(i);
            }
        }
    }

    fn start(&mut self, i: usize, now: Time) {
        let is_tcp = i < self.tcp_flows;
        let flow = &mut self.flows[i];
        flow.stage.started = true;
        flow.stage.on = true;
        if is_tcp {
            match flow.sender.connect(&flow.destination.into()) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
                Err(error) => flow.stage.failed = Some(format!("cannot connect: {error}")),
            }
            flow.write();
            self.end_if_failed(i);
        } else {
            flow.begin_on_time(now);
        }
    }

    fn stop(&mut self, i: usize) {
        let flow = &mut self.flows[i];
        flow.stage.stopped = true;
        flow.stage.on = false;
        if i < self.tcp_flows && flow.stage.started {
            let _ = flow.sender.shutdown(Shutdown::Write);
        }
    }

    fn set_on(&mut self, i: usize, on: bool, now: Time) {
        let is_tcp = i < self.tcp_flows;
        let flow = &mut self.flows[i];
        if flow.stage.stopped || flow.stage.on == on {
            return;
        }
        flow.stage.on = on;
        if is_tcp {
            flow.write();
        } else if on {
            flow.begin_on_time(now);
        }
    }

    fn send_due(&mut self, i: usize, now: Time) -> Option<Time> {
        self.flows[i].send_due(now)
    }

    fn stage(&self, i: usize) -> &Stage {
        &self.flows[i].stage
    }

    fn state(&self, i: usize) -> FlowState {
        self.flows[i].state
    }

    fn has_sockets(&self) -> bool {
        true
    }

    fn info(&self, i: usize) -> Option<TcpInfo> {
        let flow = &self.flows[i];
        let past = if let Kind::Tcp { past, .. } = &flow.kind { *past } else { TcpInfo::default() };
        let now = if flow.stage.started { syscall::tcp_info(&flow.sender).ok() } else { None };
        match now {
            Some(now) => Some(now.after(&past)),
            None => (past.data_segments > 0).then_some(past),
        }
    }

    fn receiver_info(&self, i: usize) -> Option<TcpInfo> {
        let flow = &self.flows[i];
        if flow.connected { syscall::tcp_info(&flow.receiver).ok() } else { None }
    }

    fn next_ended(&mut self) -> Option<usize> {
        self.ended.pop_front()
    }

    fn next_complete(&mut self) -> Option<usize> {
        self.complete.pop_front()
    }

    fn give(&mut self, i: usize, is_last: bool) {
        self.flows[i].give(is_last);
        self.end_if_failed(i);
    }

    fn renew(&mut self, i: usize, group: &FlowGroup, host: &Netns) -> Result<(), Error> {
        let past = self.info(i).unwrap_or_default();
        let sender = host.enter(|| attempt(i, group, || open_sender(i, group)))?;
        watch(&self.epoll, &sender, i, SENDER)?;
        let flow = &mut self.flows[i];
        flow.sender = sender;
        if let Some(listener) = flow.listener.take() {
            flow.receiver = listener;
        }
        if let Kind::Tcp { left, size, turns, target, past: of_earlier, .. } = &mut flow.kind {
            *left = turns.first(*size);
            (*target, *of_earlier) = (flow.state.received, past);
        }
        (flow.connected, flow.window) = (false, None);
        let ended = std::mem::take(&mut flow.stage);
        // Keep the first of several reasons.
        flow.failure = flow.failure.take().or(ended.failed);
        Ok(())
    }

    /// The right edge already offered stays, as Linux keeps it.
    fn cookie(&self, i: usize, end: FlowEnd) -> Option<u64> {
        let flow = &self.flows[i];
        let socket = match end {
            FlowEnd::Receiver if flow.connected => &flow.receiver,
            FlowEnd::Sender if flow.stage.started => &flow.sender,
            _ => return None,
        };
        syscall::socket_cookie(socket).ok()
    }

    fn set_window(&mut self, i: usize, window: Bytes) -> Result<(), Error> {
        let flow = &mut self.flows[i];
        let window = window.get().max(flow.segment);
        flow.window = Some(i32::try_from(window).unwrap_or(i32::MAX));
        flow.bound_window().map_err(|error| Error::os(format!("bound the window of flow {i}"), error))
    }

    fn set_rate(&mut self, i: usize, rate: Rate) -> Result<(), Error> {
        let bytes = i32::try_from(rate.bits_per_sec() / 8).unwrap_or(i32::MAX).max(1);
        syscall::set_option(&self.flows[i].sender, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes)
            .map_err(|error| Error::os(format!("pace flow {i}"), error))
    }

    fn failures(&mut self) -> Vec<(usize, String)> {
        let failed = self.flows.iter().enumerate();
        failed
            .filter_map(|(i, flow)| Some((i, flow.failure.as_ref().or(flow.stage.failed.as_ref())?.clone())))
            .collect()
    }

    fn refused_datagrams(&self) -> u64 {
        let refused = |flow: &Flow| if let Kind::Udp { refused, .. } = flow.kind { refused } else { 0 };
        self.flows.iter().map(refused).sum()
    }
}

impl Flow {
    fn new(
        i: usize,
        group: &FlowGroup,
        size: Option<u64>,
        jitter: Option<Jitter>,
        sender: Socket,
        receiver: Socket,
    ) -> Self {
        let kind = match &group.transport {
            Transport::Tcp { .. } => {
                let turns = match group.rounds {
                    None => Turns::One,
                    Some(_) if group.persistent => Turns::Kept,
                    Some(_) => Turns::Anew,
                };
                Kind::Tcp {
                    left: turns.first(size),
                    size,
                    turns,
                    target: 0,
                    is_last: false,
                    past: TcpInfo::default(),
                }
            }
            Transport::Udp { rate, packet, .. } => Kind::Udp {
                payload: packet.get().saturating_sub(u64::from(UDP_HEADERS)) as usize,
                rate: rate.bits_per_sec().max(1),
                bits: packet.get() * 8,
                on_since: Time::ZERO,
                sent: 0,
                late: Span::ZERO,
                jitter,
                refused: 0,
            },
        };
        let segment = match &group.transport {
            Transport::Tcp { settings, .. } => settings.mss.get(),
            Transport::Udp { .. } => 0,
        };
        Self {
            sender,
            receiver,
            segment,
            listener: None,
            connected: false,
            destination: SocketAddr::from((address::receiver(i), PORT)),
            kind,
            state: FlowState::default(),
            stage: Stage::default(),
            failure: None,
            window: None,
        }
    }

    /// Of a connection that is there: at a listening socket a bound would choose the scale of the window, and stay for ever.
    fn bound_window(&self) -> io::Result<()> {
        match self.window {
            Some(window) if self.connected => {
                syscall::set_option(&self.receiver, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, window)
            }
            _ => Ok(()),
        }
    }

    /// One more time its size, on a connection that stays.
    fn give(&mut self, last: bool) {
        if let Kind::Tcp { left: Some(left), size: Some(size), target, is_last, .. } = &mut self.kind {
            *left += *size;
            *target += *size;
            *is_last = last;
        }
        self.write();
    }

    /// Writes as much as the kernel takes.
    fn write(&mut self) {
        let Kind::Tcp { left, turns, is_last, .. } = &mut self.kind else { return };
        if !self.stage.started || !self.stage.on || self.stage.stopped {
            return;
        }
        loop {
            let most = left.map_or(PAYLOAD.len(), |left| PAYLOAD.len().min(left as usize));
            if most == 0 && *turns == Turns::Kept && !*is_last {
                return;
            }
            if most == 0 {
                let _ = self.sender.shutdown(Shutdown::Write);
                self.stage.stopped = true;
                return;
            }
            match (&self.sender).write(&PAYLOAD[..most]) {
                Ok(n) => *left = left.map(|left| left - n as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let waits = [io::ErrorKind::WouldBlock, io::ErrorKind::NotConnected];
                    if !waits.contains(&error.kind()) {
                        self.stage.failed.get_or_insert_with(|| error.to_string());
                    }
                    return;
                }
            }
        }
    }

    fn begin_on_time(&mut self, now: Time) {
        if let Kind::Udp { on_since, sent, late, jitter, .. } = &mut self.kind {
            (*on_since, *sent) = (now, 0);
            *late = jitter.as_mut().map_or(Span::ZERO, Jitter::draw);
        }
    }

    /// Packet n of an on time leaves when the source has made n packets' worth of bits since, or as much later as it is
    /// jittered.
    fn send_due(&mut self, now: Time) -> Option<Time> {
        if !self.stage.on {
            return None;
        }
        let Kind::Udp { payload, rate, bits, on_since, sent, late, jitter, refused } = &mut self.kind else {
            return None;
        };
        loop {
            let nanos = u128::from(*sent + 1) * u128::from(*bits) * 1_000_000_000 / u128::from(*rate);
            let due = *on_since + Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)) + *late;
            if due > now {
                return Some(due);
            }
            *sent += 1;
            *late = jitter.as_mut().map_or(Span::ZERO, Jitter::draw);
            if (&self.sender).write(&PAYLOAD[..(*payload).min(PAYLOAD.len())]).is_err() {
                *refused += 1;
            }
        }
    }
}

fn watch(epoll: &Epoll, socket: &impl AsFd, flow: usize, end: u64) -> Result<(), Error> {
    let flags = if end == SENDER { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
    let event = EpollEvent::new(flags | EpollFlags::EPOLLET, (flow as u64) << 1 | end);
    epoll.add(socket, event).map_err(|errno| Error::os("wait for sockets", errno.into()))
}

fn attempt<T>(i: usize, group: &FlowGroup, open: impl FnOnce() -> io::Result<T>) -> Result<T, Error> {
    open().map_err(|error| Error::os(format!("open a socket of flow {i} ({})", group.name), error))
}

fn open_receiver(i: usize, group: &FlowGroup, bounded: bool) -> io::Result<Socket> {
    let here = SocketAddr::from((address::receiver(i), PORT));
    let socket = match &group.transport {
        Transport::Tcp { settings, .. } => {
            let socket = tcp_socket(settings, group.dscp)?;
            let buffer = settings.receive_buffer.get();
            if buffer <= LARGEST_FIXED || bounded {
                // Twice, for the kernel's own bookkeeping; the window is what is asked for.
                let bytes = i32::try_from(buffer * 2).unwrap_or(i32::MAX);
                syscall::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
                    .or_else(|_| socket.set_recv_buffer_size(bytes as usize))?;
                let window = i32::try_from(buffer).unwrap_or(i32::MAX);
                syscall::set_option(&socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, window)?;
            }
            socket.bind(&here.into())?;
            socket.listen(16)?;
            socket
        }
        Transport::Udp { .. } => {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
            let _ = syscall::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20);
            socket.bind(&here.into())?;
            socket
        }
    };
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn open_sender(i: usize, group: &FlowGroup) -> io::Result<Socket> {
    let here = SocketAddr::from((address::sender(i), 0));
    let there = SocketAddr::from((address::receiver(i), PORT));
    let socket = match &group.transport {
        Transport::Tcp { settings, .. } => {
            let socket = tcp_socket(settings, group.dscp)?;
            syscall::set_option(&socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, WRITTEN_AHEAD)?;
            if settings.pacing {
                syscall::set_option(&socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, NO_LIMIT)?;
            }
            socket.bind(&here.into())?;
            socket
        }
        Transport::Udp { .. } => {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_tos_v4(u32::from(group.dscp) << 2)?;
            let _ = syscall::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 8 << 20);
            socket.bind(&here.into())?;
            socket.connect(&there.into())?;
            socket
        }
    };
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn tcp_socket(settings: &TcpSettings, dscp: u8) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_congestion(kernel_name(&settings.congestion_control).as_bytes())?;
    socket.set_tos_v4(u32::from(dscp) << 2)?;
    socket.set_tcp_mss(user_mss(settings) as u32)?;
    Ok(socket)
}

/// The kernel takes the options off the segment size, the scenario does not count them.
pub(crate) fn user_mss(settings: &TcpSettings) -> u64 {
    settings.mss.get() + if settings.timestamps { 12 } else { 0 }
}

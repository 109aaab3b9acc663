//! What waits at a port, and what may wait there, as its queue discipline tells.

use bandmaster_core::switch::FRAME;
use netlink_bindings::tc::{OptionsMsg, Request, Tcmsg};
use netlink_socket2::{NetlinkSocket, ReplyError};

/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;
/// `TC_H_CLSACT`, and of an ingress qdisc.
const INGRESS: u32 = 0xffff_fff1;

/// The queue of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Queue {
    /// Bytes that wait.
    pub(super) backlog: u64,
    /// Bytes that it has sent.
    pub(super) sent: u64,
    /// Kind of the discipline at the root.
    pub(super) kind: String,
    /// Bytes that its smallest FIFO holds; none: it has no FIFO that tells so.
    pub(super) limit: Option<u64>,
}

impl Queue {
    /// Why it does not hold `buffer` bytes; none: it does.
    pub(super) fn lacks(&self, interface: &str, buffer: u64) -> Option<String> {
        let kind = if self.kind.is_empty() { "noqueue" } else { &self.kind };
        match self.limit {
            Some(limit) if limit >= buffer => None,
            Some(limit) => Some(format!(
                "interface {interface}: its queue discipline ({kind}) holds {limit} B, less than the buffer of {buffer} B"
            )),
            None => Some(format!(
                "interface {interface}: its queue discipline ({kind}) is no FIFO of known size; give it a tbf, bfifo or pfifo, \
                 or an htb whose classes have one"
            )),
        }
    }
}

/// The queues of the devices with these numbers.
///
/// # Errors
/// When the kernel does not tell.
pub(super) fn queues(devices: &[u32]) -> Result<Vec<Queue>, String> {
    read(devices).map_err(|error| format!("rtnetlink: {error}"))
}

fn read(devices: &[u32]) -> Result<Vec<Queue>, ReplyError> {
    let mut socket = NetlinkSocket::new();
    let mut all = vec![Queue::default(); devices.len()];
    let mut by_shaper: Vec<Option<u64>> = vec![None; devices.len()];
    let request = Request::new().op_getqdisc_dump(&Tcmsg::default());
    let mut answer = socket.request(&request)?;
    while let Some(item) = answer.recv() {
        let (header, attributes) = item?;
        let Some(at) = devices.iter().position(|device| *device as i32 == header.ifindex) else { continue };
        if header.parent == INGRESS {
            continue;
        }
        let queue = &mut all[at];
        if header.parent == ROOT {
            queue.backlog = attributes.get_stats2()?.get_queue()?.backlog.into();
            queue.sent = attributes.get_stats2()?.get_basic()?.bytes;
            queue.kind = attributes.get_kind()?.to_string_lossy().into_owned();
        }
        let fifo = match attributes.get_options() {
            Ok(OptionsMsg::Bfifo(fifo)) => Some(u64::from(fifo.limit)),
            Ok(OptionsMsg::Pfifo(fifo)) => Some(u64::from(fifo.limit) * FRAME),
            Ok(OptionsMsg::Tbf(options)) => {
                by_shaper[at] = options.get_parms().ok().map(|parms| parms.limit.into());
                None
            }
            _ => None,
        };
        if let Some(limit) = fifo {
            queue.limit = Some(queue.limit.map_or(limit, |least| least.min(limit)));
        }
    }
    for (queue, limit) in all.iter_mut().zip(by_shaper) {
        queue.limit = queue.limit.or(limit);
    }
    Ok(all)
}

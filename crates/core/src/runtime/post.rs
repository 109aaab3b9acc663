//! Messages between roles on their way over the modelled control plane.

use crate::control::Message;
use crate::id::NodeId;
use crate::rng::Stream;
use crate::runtime::envelope;
use crate::time::Span;

/// The modelled control plane: delay and loss of messages between different nodes.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct ControlPlane {
    /// One-way delay of a message between two nodes; messages inside a node take no time.
    pub delay: Span,
    /// Probability that a message between two nodes is lost.
    pub loss: f64,
}

/// Messages on their way: delays them, loses them, counts their bytes. The clock is the runtime's.
#[derive(Clone, Debug)]
pub struct Post {
    plane: ControlPlane,
    stream: Stream,
    /// By number; delivered ones are taken out.
    messages: Vec<Option<(NodeId, Message)>>,
    free: Vec<u32>,
    bytes_sent: u64,
}

impl Post {
    /// With nothing on its way; `stream` decides what is lost.
    pub const fn new(plane: ControlPlane, stream: Stream) -> Self {
        Self { plane, stream, messages: Vec::new(), free: Vec::new(), bytes_sent: 0 }
    }

    /// Takes a message in: after how long it is to be [received](Self::receive), and its number. None: it is lost.
    pub fn send(&mut self, to: NodeId, message: Message) -> Option<(Span, u32)> {
        let mut delay = Span::ZERO;
        if message.from != to {
            self.bytes_sent += envelope::size(&message);
            if self.plane.loss > 0.0 && self.stream.chance(self.plane.loss) {
                return None;
            }
            delay = self.plane.delay;
        }
        Some((delay, self.take_in(to, message)))
    }

    /// Takes a message in that another part of the same run has let through; its number.
    pub fn take_in(&mut self, to: NodeId, message: Message) -> u32 {
        let number = self.free.pop().unwrap_or(self.messages.len() as u32);
        if number as usize == self.messages.len() {
            self.messages.push(None);
        }
        self.messages[number as usize] = Some((to, message));
        number
    }

    /// Counts the bytes of messages that another part of the same run has sent.
    pub fn absorb(&mut self, other: &Self) {
        self.bytes_sent += other.bytes_sent;
    }

    /// Takes message `number` out, with the node that it is for; none when it has been taken.
    pub fn receive(&mut self, number: u32) -> Option<(NodeId, Message)> {
        let message = self.messages.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(message)
    }

    /// Bytes of the messages between two nodes, the lost ones too.
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(loss: f64) -> Post {
        Post {
            plane: ControlPlane { delay: Span::from_millis(3), loss },
            stream: Stream::new(1, 0, "control-plane"),
            messages: Vec::new(),
            free: Vec::new(),
            bytes_sent: 0,
        }
    }

    #[test]
    fn messages_come_once_and_their_numbers_are_used_again() {
        let (a, b) = (NodeId(0), NodeId(1));
        let say = |from, byte| Message { from, scheme: 1, body: vec![byte] };
        let mut post = post(0.0);
        assert_eq!(post.send(b, say(a, 1)), Some((Span::from_millis(3), 0)));
        assert_eq!(post.send(b, say(b, 2)), Some((Span::ZERO, 1)), "inside a node it takes no time");
        assert_eq!(post.bytes_sent(), 28 + 27 + 1, "and costs nothing");
        assert_eq!(post.receive(0), Some((b, say(a, 1))));
        assert_eq!(post.receive(0), None);
        assert_eq!(post.send(b, say(a, 3)), Some((Span::from_millis(3), 0)));
    }

    #[test]
    fn lost_messages_cost_their_bytes() {
        let mut post = post(1.0);
        assert_eq!(post.send(NodeId(1), Message { from: NodeId(0), scheme: 1, body: vec![1] }), None);
        assert_eq!(post.bytes_sent(), 28 + 27 + 1);
    }
}

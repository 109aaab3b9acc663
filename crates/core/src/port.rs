//! Per-packet programs at a port: they see the headers that pass, and may count, stamp or rewrite.

pub mod flow_counter;
pub mod window;

use crate::id::FlowId;
use crate::time::Time;

/// What a program sees of a packet that is handed to the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Flow.
    pub flow: FlowId,
    /// It goes from the flow's receiver to its sender.
    pub reverse: bool,
    /// TCP SYN flag.
    pub syn: bool,
    /// TCP FIN or RST flag.
    pub fin: bool,
}

impl PortProgram for Box<dyn PortProgram> {
    fn on_packet(&mut self, now: Time, header: &Header) {
        (**self).on_packet(now, header);
    }
}

/// A per-packet program.
pub trait PortProgram: Send {
    /// Sees a packet that the port accepts at `now`.
    fn on_packet(&mut self, now: Time, header: &Header);
}

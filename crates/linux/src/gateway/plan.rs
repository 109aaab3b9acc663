//! Lists what a gateway would change, for people and programs. Changes nothing.

use std::fmt;

use bandmaster_core::params::Limit;
use bandmaster_core::scheme::er2bc::deployment::{Restore, Role, Sender};
use bandmaster_core::units::Bytes;
use serde::Serialize;

use super::counters::link_header;
use super::shaper::Rates;
use super::{Error, Loaded, device, order, rules};
use crate::htb;

/// A full frame and a little: what may leave at once.
const BURST: Bytes = Bytes::new(1600);
/// An Ethernet frame: what a class sends in its turn.
const QUANTUM: Bytes = Bytes::new(1514);
/// The last priority of HTB.
const LAST_PRIO: usize = 7;

/// What a gateway would change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Plan {
    /// Device.
    pub interface: String,
    /// What it has now; none when there is no such device here.
    pub now: Option<String>,
    /// Why the gateway would not start.
    pub obstacles: Vec<String>,
    /// Queue discipline and classes, as arguments of `tc`.
    pub qdisc: Vec<String>,
    /// The table, as input of `nft -f`.
    pub rules: String,
    /// Other settings of the device.
    pub settings: Vec<String>,
    /// Sockets that are opened.
    pub sockets: Vec<String>,
    /// How packets would be counted.
    pub counting: String,
    /// When it is undone.
    pub undo: String,
}

/// The shaper as it is made.
pub(super) fn shaper(sender: &Sender, overhead: u32) -> htb::Plan {
    let rates = Rates::initial(sender, overhead);
    let class = |(number, (class, (rate, ceil))): (usize, (&_, &(_, _)))| {
        let class: &bandmaster_core::scheme::er2bc::deployment::Class = class;
        htb::Class {
            name: class.name.clone(),
            rate: *rate,
            ceil: *ceil,
            burst: BURST,
            cburst: BURST,
            prio: number.min(LAST_PRIO) as u8,
            quantum: Some(QUANTUM),
            limit: Limit::Packets(class.queue),
            dscp: Vec::new(),
        }
    };
    htb::Plan {
        rate: rates.root.0,
        ceil: rates.root.1,
        burst: BURST,
        cburst: BURST,
        classes: sender.classes.iter().zip(&rates.classes).enumerate().map(class).collect(),
        default: None,
        direct: Vec::new(),
        overhead: 0,
        uncounted: 0,
    }
}

/// What a gateway with this deployment would change on this machine.
///
/// # Errors
/// When the machine cannot be asked.
pub fn plan(loaded: &Loaded) -> Result<Plan, Error> {
    let deployment = &loaded.deployment;
    let interface = deployment.interface.clone();
    let mut obstacles = Vec::new();
    let mut now = None;
    match device::index(&interface) {
        Err(error) => obstacles.push(error.to_string()),
        Ok(index) => {
            if let Err(error) = device::fit(&interface) {
                obstacles.push(error.to_string());
            }
            let qdisc = device::root_qdisc(index)?;
            now = Some(qdisc.as_ref().map_or("no qdisc".to_owned(), |qdisc| {
                let whose = if qdisc.foreign() { "of somebody" } else { "of the kernel" };
                format!("{} {:x}: {whose}", qdisc.kind, qdisc.handle >> 16)
            }));
            if let Some(qdisc) = qdisc.filter(|qdisc| qdisc.foreign() && deployment.sender.is_some())
                && !deployment.replace_qdisc
            {
                obstacles.push(format!("the qdisc {} is somebody's; say replace-qdisc = true", qdisc.kind));
            }
        }
    }
    let mut qdisc = Vec::new();
    if let Some(sender) = &deployment.sender {
        let htb = shaper(sender, link_header(&deployment.interface));
        qdisc.push(format!("qdisc add dev {interface} root handle 1: htb default 0"));
        let (rate, ceil) = (htb.rate, htb.ceil);
        qdisc.push(format!(
            "class add dev {interface} parent 1: classid 1:1 htb rate {rate} ceil {ceil} burst {} cburst {}",
            BURST.get(),
            BURST.get()
        ));
        for (number, class) in htb.classes.iter().enumerate() {
            let (handle, queue) = (htb::class_name(number), sender.classes[number].queue);
            let htb::Class { rate, ceil, prio, .. } = class;
            qdisc.push(format!(
                "class add dev {interface} parent 1:1 classid {handle} htb rate {rate} ceil {ceil} burst {0} cburst {0} \
                 quantum {1} prio {prio}",
                BURST.get(),
                QUANTUM.get()
            ));
            let minor = htb::class_handle(number) & 0xffff;
            qdisc.push(format!(
                "qdisc add dev {interface} parent {handle} handle {minor:x}: pfifo limit {queue}"
            ));
        }
    }
    let mut settings = Vec::new();
    if deployment.role != Role::Sender && device::merges_received(&interface) != Some(false) {
        settings.push(format!("ethtool -K {interface} gro off"));
    }
    let mut sockets = vec![format!("udp {} <-> {}", deployment.listen, deployment.peer_name())];
    sockets.extend(deployment.metrics.map(|address| format!("tcp {address} (metrics)")));
    sockets.push(format!("unix {}/{}", deployment.state_directory, super::status::SOCKET));
    let undo = match deployment.restore {
        Restore::OnExit => "whenever the gateway ends",
        Restore::OnFailure => "when the gateway fails; an ordered stop leaves everything in force",
        Restore::Never => "by `gateway restore` only",
    };
    Ok(Plan {
        interface,
        now,
        obstacles,
        qdisc,
        rules: rules::ruleset(deployment),
        settings,
        sockets,
        counting: order::counting(loaded),
        undo: undo.to_owned(),
    })
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# {} has now: {}",
            self.interface,
            self.now.as_deref().unwrap_or("(no such interface here)")
        )?;
        for obstacle in &self.obstacles {
            writeln!(f, "# in the way: {obstacle}")?;
        }
        if !self.qdisc.is_empty() {
            writeln!(f, "\n# tc -batch; the rates are those of the start, and follow the estimate")?;
        }
        for line in &self.qdisc {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "\n# nft -f\n{}", self.rules.trim_end())?;
        if !self.settings.is_empty() {
            writeln!(f, "\n# settings")?;
        }
        for line in &self.settings {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "\n# sockets")?;
        for line in &self.sockets {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "\n# counts by {}", self.counting)?;
        write!(f, "# undone {}", self.undo)
    }
}

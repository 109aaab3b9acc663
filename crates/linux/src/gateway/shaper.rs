//! The rates in force: those that the scheme wants, or the safe ones.

use bandmaster_core::id::{NodeId, PortId};
use bandmaster_core::runtime::{Host, Refusal, Runner};
use bandmaster_core::scheme::Act;
use bandmaster_core::scheme::er2bc::deployment::{Sender, inventory};
use bandmaster_core::time::Time;
use bandmaster_core::units::Rate;

use crate::htb::{Htb, HtbError, are_rates};

/// Rate and ceil of the root and the classes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rates {
    pub(super) root: (Rate, Rate),
    pub(super) classes: Vec<(Rate, Rate)>,
}

/// Takes what a role wants, and sends nothing.
impl Host for Rates {
    const ACTS: &'static [Act] = &[Act::Probe, Act::SetClass];

    fn wake(&mut self, _role: usize, _at: Time) {}

    fn probe(&mut self, _now: Time, _from: NodeId, _to: NodeId, _payload: Vec<u8>) -> Result<(), Refusal> {
        Ok(())
    }

    fn set_class(
        &mut self,
        _port: PortId,
        class: Option<usize>,
        rate: Rate,
        ceil: Rate,
    ) -> Result<(), Refusal> {
        self.set(class, rate, ceil).then_some(()).ok_or(Refusal::Unknown)
    }
}

impl Rates {
    /// Those that the role sets first.
    pub(super) fn initial(sender: &Sender, overhead: u32) -> Self {
        let least = Rate::from_bits_per_sec(1);
        let mut rates = Self { root: (least, least), classes: vec![(least, least); sender.classes.len()] };
        if let Ok(mut runner) = Runner::new::<Self>(vec![sender.role(overhead, None)], inventory()) {
            runner.begin(&mut rates, Time::ZERO);
            runner.wake(&mut rates, 0, Time::ZERO, Time::ZERO);
        }
        rates
    }

    /// Changes one: none is the root. False when there is no such class, or no class can have such rates.
    pub(super) fn set(&mut self, class: Option<usize>, rate: Rate, ceil: Rate) -> bool {
        let place = match class {
            None => Some(&mut self.root),
            Some(at) => self.classes.get_mut(at),
        };
        place.filter(|_| are_rates(rate, ceil)).map(|place| *place = (rate, ceil)).is_some()
    }

    /// Puts into `htb` what it has not yet.
    pub(super) fn apply(&self, htb: &mut Htb) -> Result<(), HtbError> {
        let plan = htb.plan();
        let root = (plan.rate, plan.ceil) != self.root;
        let changed: Vec<usize> = (0..self.classes.len().min(plan.classes.len()))
            .filter(|at| (plan.classes[*at].rate, plan.classes[*at].ceil) != self.classes[*at])
            .collect();
        if root {
            htb.change(None, self.root.0, self.root.1)?;
        }
        changed.into_iter().try_for_each(|at| htb.change(Some(at), self.classes[at].0, self.classes[at].1))
    }
}

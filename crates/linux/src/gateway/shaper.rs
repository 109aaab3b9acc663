//! The rates in force: those that the scheme wants, or the safe ones.

use bandmaster_core::scenario::deployment::Sender;
use bandmaster_core::scheme::er2bc::shares::{self, Shares};
use bandmaster_core::units::Rate;

use crate::htb::{Htb, HtbError};

/// Rate and ceil of the root and of each class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rates {
    pub(super) root: (Rate, Rate),
    pub(super) classes: Vec<(Rate, Rate)>,
}

impl Rates {
    /// Those that `law` gives for a bandwidth of `w`.
    pub(super) fn new(sender: &Sender, law: shares::Law, w: Rate) -> Self {
        let settings = shares::Settings { law, ..sender.settings.shares };
        let shares = Shares::new(settings, &sender.settings.flows, w);
        let least = |rate: Rate| rate.max(Rate::from_bits_per_sec(1));
        let class = |class: &shares::Class| {
            let rate = least(class.rate);
            (rate, class.ceil.max(rate))
        };
        let w = least(w);
        Self { root: (w, w), classes: shares.plan().classes.iter().map(class).collect() }
    }

    /// Those at the start.
    pub(super) fn initial(sender: &Sender) -> Self {
        Self::new(sender, sender.settings.shares.law, sender.settings.estimator.initial)
    }

    /// Those while the peer is silent: what each needs in order of priority, out of the safe rate.
    pub(super) fn safe(sender: &Sender) -> Self {
        Self::new(sender, shares::Law::Basic, sender.safe_rate)
    }

    /// Changes one: none is the root.
    pub(super) fn set(&mut self, class: Option<usize>, rate: Rate, ceil: Rate) {
        match class {
            None => self.root = (rate, ceil),
            Some(at) => {
                if let Some(class) = self.classes.get_mut(at) {
                    *class = (rate, ceil);
                }
            }
        }
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

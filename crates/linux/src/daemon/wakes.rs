//! When a daemon's roles are woken.

use std::collections::BTreeMap;

use bandmaster_core::time::Time;

/// When roles are to be woken.
#[derive(Default)]
pub(crate) struct Wakes(BTreeMap<usize, Wake>);

/// When a role wants to be woken, by which its runner knows the wake, and when it is.
#[derive(Clone, Copy)]
struct Wake {
    due: Time,
    at: Time,
}

impl Wakes {
    pub(crate) fn plan(&mut self, role: usize, due: Time, at: Time) {
        self.0.insert(role, Wake { due, at });
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.0.values().map(|wake| wake.at).min()
    }

    /// A role to be woken by `now`, and when it wanted to be.
    pub(crate) fn due(&mut self, now: Time) -> Option<(usize, Time)> {
        let (&role, &Wake { due, .. }) = self.0.iter().find(|(_, wake)| wake.at <= now)?;
        self.0.remove(&role);
        Some((role, due))
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::time::Span;

    use super::*;

    /// A runner takes a wake only for the time that its role asked for.
    #[test]
    fn a_role_that_is_woken_later_is_woken_for_the_time_it_asked_for() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut wakes = Wakes::default();
        wakes.plan(0, at(100), at(100));
        assert_eq!(wakes.due(at(120)), Some((0, at(100))));
        wakes.plan(0, at(100), at(220));
        assert_eq!((wakes.next(), wakes.due(at(219))), (Some(at(220)), None));
        assert_eq!(wakes.due(at(220)), Some((0, at(100))));
        assert_eq!(wakes.next(), None);
    }
}

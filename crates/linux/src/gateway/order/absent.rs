//! No programs: this one was built without them.

use std::convert::Infallible;

use bandmaster_core::control::Passed;
use bandmaster_core::scheme::er2bc::deployment::{Deployment, Role};

use super::{Direction, NoOrder, Note};

/// There is none.
pub(in crate::gateway) struct Order(Infallible);

impl Order {
    pub(super) fn load(_: Role) -> Result<Self, NoOrder> {
        Err(NoOrder::NotBuilt)
    }

    pub(in crate::gateway) fn attach(_: &Deployment) -> Result<Self, NoOrder> {
        Err(NoOrder::NotBuilt)
    }

    pub(in crate::gateway) fn set(&mut self, _: &Deployment) -> Result<(), NoOrder> {
        match self.0 {}
    }

    pub(in crate::gateway) fn follow(&mut self, _: &Deployment) -> Result<bool, NoOrder> {
        match self.0 {}
    }

    pub(in crate::gateway) fn take(&mut self, _: Direction, _: &[u8]) -> Option<Note> {
        match self.0 {}
    }

    pub(in crate::gateway) fn received(&self) -> Option<Passed> {
        match self.0 {}
    }

    pub(in crate::gateway) fn begin_anew(&mut self) {
        match self.0 {}
    }
}

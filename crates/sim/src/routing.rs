//! Routes are found as in every runtime.

pub(crate) use bandmaster_core::routing::Router;

//! Samples and metrics are taken as in every runtime.

pub(crate) use bandmaster_core::measure::gauges::GaugeMeter;
pub(crate) use bandmaster_core::measure::{FlowSample, Flows, Meter};

//! The list of disciplines.

use super::{
    QdiscDef, ared, cake, codel, drr, fbqm, fifo, fq_codel, fq_pie, htb, pie, prio, red, shared, tbf,
};

/// Every queue discipline.
pub static REGISTRY: &[&QdiscDef] = &[
    &fifo::DEF,
    &fbqm::DEF,
    &red::DEF,
    &ared::DEF,
    &pie::DEF,
    &codel::DEF,
    &fq_codel::DEF,
    &fq_pie::DEF,
    &cake::DEF,
    &drr::DEF,
    &prio::DEF,
    &tbf::DEF,
    &htb::DEF,
    &shared::DEF,
];

//! What hostile input must not do: panic, hang, or take more memory than the stated bound.

mod decoders;
mod errors;
mod parsers;
mod runs;
mod tree;

//! The gateway between network namespaces: needs root, iproute2, nftables and ethtool; without them each test says so and
//! does nothing. Nothing outside the namespaces that a test makes is touched.

mod child;
mod faults;
mod lab;
mod life;
#[path = "../machine/mod.rs"]
mod machine;
mod manners;
mod order;
mod path;
mod probes;
mod robust;

//! The eR2BC gateway on a real machine.

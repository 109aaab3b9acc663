//! The binary `bandmaster`.

use std::process::ExitCode;

fn main() -> ExitCode {
    bandmaster::main()
}

//! With the feature `bpf`: compiles the program that counts in the kernel, by clang.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/bpf/order.c";
/// Tried in order, unless the variable `CLANG` names one.
const COMPILERS: [&str; 2] = ["clang-19", "clang"];

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CLANG");
    if std::env::var_os("CARGO_FEATURE_BPF").is_none() {
        return;
    }
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let named = std::env::var("CLANG").ok();
    let compilers = match &named {
        Some(one) => vec![one.as_str()],
        None => COMPILERS.to_vec(),
    };
    // Of the machine that will run it.
    let big = std::env::var("CARGO_CFG_TARGET_ENDIAN").is_ok_and(|endian| endian == "big");
    let target = if big { "bpfeb" } else { "bpfel" };
    let mut said = Vec::new();
    for compiler in compilers {
        let output = Command::new(compiler)
            .args([
                "-target", target, "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c", SOURCE, "-o",
            ])
            .arg(folder.join("order.o"))
            .output();
        match output {
            Ok(output) if output.status.success() => return,
            Ok(output) => {
                said.push(format!("{compiler}: {}", String::from_utf8_lossy(&output.stderr).trim()));
            }
            Err(e) => said.push(format!("{compiler}: {e}")),
        }
    }
    let said = said.join("; ").replace('\n', " | ");
    println!(
        "cargo::error=the feature `bpf` needs clang 14 or later (package clang-19), or CLANG=PROGRAM: {said}"
    );
}

//! The core crate builds for wasm32 and asks its host for nothing: no clock, file, socket or random number.

use std::path::Path;
use std::process::Command;

use wasmparser::{Parser, Payload};

/// Builds the core crate as a module that keeps all its functions, though nobody calls them.
fn core_module() -> Vec<u8> {
    let target_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wasm");
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let status = Command::new(env!("CARGO"))
        .current_dir(workspace)
        .args([
            "rustc",
            "--package",
            "bandmaster-core",
            "--lib",
            "--crate-type",
            "cdylib",
            "--locked",
            "--release",
        ])
        .args(["--target", "wasm32-unknown-unknown", "--config", "profile.release.lto=false"])
        .arg("--target-dir")
        .arg(&target_dir)
        .args(["--", "-C", "link-dead-code", "-C", "link-arg=--no-gc-sections"])
        .status()
        .expect("cargo runs");
    assert!(status.success(), "core does not build for wasm32: is the target installed?");
    let module = target_dir.join("wasm32-unknown-unknown/release/bandmaster_core.wasm");
    std::fs::read(&module).unwrap_or_else(|e| panic!("{}: {e}", module.display()))
}

#[test]
#[ignore = "needs the target wasm32-unknown-unknown; `bash ci.sh wasm` runs it"]
fn the_core_imports_nothing() {
    let module = core_module();
    let mut imports = Vec::new();
    let mut functions = 0;
    for payload in Parser::new(0).parse_all(&module) {
        match payload.expect("a valid module") {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.expect("a valid import");
                    imports.push(format!("{}.{}", import.module, import.name));
                }
            }
            Payload::FunctionSection(section) => functions = section.count(),
            _ => {}
        }
    }
    assert!(functions > 500, "only {functions} functions: the linker dropped the code that is to be checked");
    assert!(imports.is_empty(), "core asks its host for {imports:?}");
}

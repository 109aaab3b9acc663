//! Programs in the kernel (eBPF). They ship as compiled objects, so no compiler is needed at run time.

pub mod fbqm;
pub mod flows;
pub mod tcp;
pub mod windows;

use std::{fmt, io};

use aya::maps::Map;
use aya::programs::ProgramError;
use aya::{Btf, Ebpf, EbpfLoader};

use crate::doctor::has_capability;

/// Why the kernel does not take a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoProgram {
    said: String,
    /// It takes none of this process: a capability is missing, or BPF is locked or left out.
    pub is_forbidden: bool,
}

impl NoProgram {
    pub(crate) const fn new(said: String) -> Self {
        Self { said, is_forbidden: false }
    }
}

impl fmt::Display for NoProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

/// Hands the maps and programs of `object` to the kernel, which checks programs when they are loaded.
pub(crate) fn load(object: &[u8]) -> Result<Ebpf, NoProgram> {
    load_by(&mut EbpfLoader::new(), object)
}

/// The same, with a map that holds `entries`.
pub(crate) fn load_sized(object: &[u8], name: &str, entries: u32) -> Result<Ebpf, NoProgram> {
    load_by(EbpfLoader::new().map_max_entries(name, entries), object)
}

fn load_by(loader: &mut EbpfLoader<'_>, object: &[u8]) -> Result<Ebpf, NoProgram> {
    if cfg!(target_endian = "big") {
        return Err(NoProgram::new("the programs come for little-endian machines".to_owned()));
    }
    loader.load(object).map_err(refused)
}

/// The types of this kernel. Reading them takes 0.3 to 2 s.
pub(crate) fn types() -> Result<Btf, NoProgram> {
    Btf::from_sys_fs().map_err(refused)
}

/// A map of an object that is loaded.
pub(crate) fn map(kernel: &mut Ebpf, name: &str) -> Result<Map, NoProgram> {
    kernel.take_map(name).ok_or_else(|| NoProgram::new(format!("map {name} is not in the object")))
}

/// A program of an object that is loaded, as the kind that it is.
pub(crate) fn program<'a, P>(kernel: &'a mut Ebpf, name: &str) -> Result<&'a mut P, NoProgram>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let missing = || NoProgram::new(format!("program {name} is not in the object"));
    kernel.program_mut(name).ok_or_else(missing)?.try_into().map_err(refused)
}

/// Longest part of a kernel message that is shown, in characters.
const MOST_SAID: usize = 200;

/// The message with its causes: the kernel's word is the last of them.
pub(crate) fn refused(error: impl std::error::Error) -> NoProgram {
    let mut text = error.to_string();
    let (mut cause, mut is_forbidden) = (error.source(), is_locked_down() || lacks_capabilities());
    while let Some(next) = cause {
        let number = next.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        is_forbidden |= matches!(number, Some(libc::EPERM | libc::ENOSYS));
        let said = next.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    // The kernel's log of a check goes on for pages, and ends with what is wrong.
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().chars().take(MOST_SAID).collect::<String>();
    let last = lines.rfind(|line| !line.is_empty() && !line.starts_with("processed ")).unwrap_or_default();
    let last = last.chars().take(MOST_SAID).collect::<String>();
    let text = if last.is_empty() { first } else { format!("{first} ... {last}") };
    NoProgram { said: text, is_forbidden }
}

/// The kernel lets nobody read its memory: then no program that looks at connections passes its check.
fn is_locked_down() -> bool {
    std::fs::read_to_string("/sys/kernel/security/lockdown")
        .is_ok_and(|text| text.contains("[confidentiality]"))
}

/// Of those for BPF. The kernel does not say so: without `CAP_PERFMON` it finds fault with a program.
fn lacks_capabilities() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_PERFMON: u32 = 38;
    const CAP_BPF: u32 = 39;
    let lacks = |number| has_capability(number) == Some(false);
    lacks(CAP_SYS_ADMIN) && (lacks(CAP_BPF) || lacks(CAP_PERFMON))
}

//! Named network namespaces, as `ip netns` shows them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getegid, geteuid};

use crate::Error;

/// Where `ip netns` keeps its names.
const NAMES: &str = "/run/netns";

/// The environment variable by which processes of a lab are known, with the name of their namespace.
pub(crate) const LAB: &str = "BANDMASTER_LAB";

/// A network namespace with a name. It stays when this is dropped; see [`Netns::delete`].
#[derive(Clone, Debug)]
pub struct Netns {
    name: String,
    handle: Arc<File>,
}

impl Netns {
    /// Makes a namespace with nothing but `lo` in it, down.
    ///
    /// # Errors
    /// When the name is taken, or privileges are missing.
    pub fn create(name: &str) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::os(format!("make the network namespace {name}"), error);
        share_names().map_err(failed)?;
        let path = path_of(name);
        OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path).map_err(failed)?;
        // The name is a bind mount of the namespace of a thread that does nothing else.
        let made = thread::scope(|scope| {
            let bind = || -> io::Result<()> {
                unshare(CloneFlags::CLONE_NEWNET)?;
                mount(Some("/proc/thread-self/ns/net"), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
                Ok(())
            };
            scope.spawn(bind).join().unwrap_or_else(|_| Err(io::Error::other("the thread ended")))
        });
        match made.and_then(|()| File::open(&path)) {
            Ok(handle) => Ok(Self { name: name.to_owned(), handle: Arc::new(handle) }),
            Err(error) => {
                let _ = Self::delete(name);
                Err(failed(error))
            }
        }
    }

    /// The namespace called `name`, ours or another's.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(name: &str) -> Result<Self, Error> {
        let handle = File::open(path_of(name))
            .map_err(|error| Error::os(format!("open the network namespace {name}"), error))?;
        Ok(Self { name: name.to_owned(), handle: Arc::new(handle) })
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` in the namespace, on a thread of its own. Sockets and devices that it opens stay there; so do
    /// processes that it starts.
    ///
    /// # Errors
    /// When privileges are missing, or `work` fails.
    ///
    /// # Panics
    /// When `work` does.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        enter(&self.handle, &self.name, work)
    }

    /// Unlinks the name; the kernel frees the namespace when its last user exits. True when there was one.
    ///
    /// # Errors
    /// When privileges are missing.
    pub fn delete(name: &str) -> Result<bool, Error> {
        let failed = |error: io::Error| Error::os(format!("delete the network namespace {name}"), error);
        let path = path_of(name);
        if !path.exists() {
            return Ok(false);
        }
        match umount2(&path, MntFlags::MNT_DETACH) {
            // Not a mount: made, and killed before it was one.
            Ok(()) | Err(nix::Error::EINVAL) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        fs::remove_file(&path).map_err(failed)?;
        Ok(true)
    }

    /// Ends the processes called `program` that a lab started in the namespaces called `names` ([`LAB`] says so), and waits
    /// for those that are this process's. What somebody else runs there is theirs.
    pub(crate) fn end_processes(names: &[String], program: &str) {
        let is_of_lab = |process: &Path| {
            let words = fs::read(process.join("environ")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|word| {
                let of = word.strip_prefix(LAB.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
                of.is_some_and(|of| names.iter().any(|name| name.as_bytes() == of))
            })
        };
        let place = |path: PathBuf| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let places: Vec<(u64, u64)> = names.iter().filter_map(|name| place(path_of(name))).collect();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes {
            let Some(id) = process.file_name().to_str().and_then(|id| id.parse().ok()) else { continue };
            let is_called =
                fs::read_to_string(process.path().join("comm")).is_ok_and(|name| name.trim() == program);
            if is_called
                && place(process.path().join("ns/net")).is_some_and(|place| places.contains(&place))
                && is_of_lab(&process.path())
            {
                // The process may have ended already, and may not be our child.
                let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
                let _ = waitpid(Pid::from_raw(id), None);
            }
        }
    }

    /// Names of all namespaces that begin with `prefix`, sorted.
    pub fn names(prefix: &str) -> Vec<String> {
        let entries = fs::read_dir(NAMES).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
        names.sort();
        names
    }
}

/// Runs `work` in the network namespace of `handle`, on a thread of its own.
pub(crate) fn enter<T: Send>(
    handle: &File,
    name: &str,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    on_own_thread(|| {
        setns(handle, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| Error::os(format!("enter the network namespace {name}"), errno.into()))?;
        work()
    })
}

/// Runs `work` in a network namespace without a name, on a thread of its own; it goes with the last that uses it.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    on_own_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|errno| Error::os("make a network namespace", errno.into()))?;
        work()
    })
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Sets a kernel parameter of the calling thread's network namespace, such as `net.ipv4.ip_forward`.
///
/// # Errors
/// When this kernel has no such parameter, or refuses the value.
pub fn set_parameter(name: &str, value: &str) -> Result<(), Error> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    fs::write(path, value).map_err(|error| Error::os(format!("set {name} = {value}"), error))
}

/// Packets that the devices of the calling thread's network namespace dropped instead of sending them.
pub(crate) fn unsent() -> u64 {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    // After the name: 8 columns of reception, then bytes, packets, errors and drops of transmission.
    let drops = table.lines().filter_map(|line| {
        let (_, numbers) = line.split_once(':')?;
        numbers.split_whitespace().nth(11)?.parse::<u64>().ok()
    });
    drops.sum()
}

/// Turns IPv6 off for devices that come later into the calling thread's network namespace.
pub(crate) fn without_ipv6() -> Result<(), Error> {
    for name in ["net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"] {
        // A kernel without IPv6 has none to turn off.
        if parameter(name).is_some() {
            set_parameter(name, "1")?;
        }
    }
    Ok(())
}

/// A kernel parameter of the calling thread's network namespace; none where this kernel has no such parameter.
pub fn parameter(name: &str) -> Option<String> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Takes the privileges that a lab needs: as root they are there; otherwise by a user namespace in which we are root,
/// with mounts and a network of its own. Must be called while the process has one thread.
///
/// # Errors
/// When this kernel does not allow it, with what to do.
pub fn take_privileges() -> Result<(), Error> {
    if geteuid().is_root() {
        return Ok(());
    }
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
        .map_err(|errno| Error::Missing(no_user_namespace(errno)))?;
    let become_root = || -> io::Result<()> {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        mount(Some("bandmaster"), "/run", Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))?;
        Ok(())
    };
    become_root().map_err(|error| {
        Error::Missing(format!(
            "a user namespace was made, but the system does not let it be used ({error}); run as root (sudo)"
        ))
    })
}

fn no_user_namespace(errno: nix::Error) -> String {
    let remedy = match errno {
        _ if parameter("kernel.unprivileged_userns_clone").as_deref() == Some("0") => {
            "this system allows user namespaces to root only: `sudo sysctl kernel.unprivileged_userns_clone=1`, or run \
             as root (sudo)"
        }
        _ if parameter("kernel.apparmor_restrict_unprivileged_userns").as_deref() == Some("1") => {
            "AppArmor keeps user namespaces from unprivileged programs: `sudo sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0`, or run as root (sudo)"
        }
        nix::Error::ENOSPC => {
            "no user namespace is left: `sudo sysctl user.max_user_namespaces=10000`, or run as root (sudo)"
        }
        _ => "run as root (sudo), or let users make user namespaces",
    };
    format!("emulation needs network namespaces, and without root a user namespace ({errno}); {remedy}")
}

fn path_of(name: &str) -> PathBuf {
    Path::new(NAMES).join(name)
}

/// As `ip netns add` does: a shared mount, so that names made elsewhere later are seen here too.
fn share_names() -> io::Result<()> {
    fs::create_dir_all(NAMES)?;
    let none = None::<&str>;
    let share = || mount(none, NAMES, none, MsFlags::MS_SHARED | MsFlags::MS_REC, none);
    match share() {
        Ok(()) => Ok(()),
        Err(nix::Error::EINVAL) => {
            mount(Some(NAMES), NAMES, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?;
            Ok(share()?)
        }
        Err(errno) => Err(errno.into()),
    }
}

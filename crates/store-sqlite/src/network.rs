//! Where a database may not be: on file systems whose locks and shared memory do not hold between hosts.

use std::path::Path;
#[cfg(target_os = "linux")]
use std::path::PathBuf;

use crate::error::Error;
#[cfg(target_os = "linux")]
use crate::file;

/// Their numbers.
#[cfg(target_os = "linux")]
const NETWORK: [(u32, &str); 9] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB 2"),
    (0x0102_1997, "9P"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
];
/// One number for everything that a program serves: what it is says its name.
#[cfg(target_os = "linux")]
const FUSE: u32 = 0x6573_5546;
/// What is served through FUSE and stands on this host all the same.
#[cfg(target_os = "linux")]
const LOCAL: [&str; 2] = ["fuseblk", "fuse.fuse-overlayfs"];

/// Refuses a database whose file or folder, behind all links, is on a network file system.
#[cfg(target_os = "linux")]
pub(crate) fn refuse(database: &Path) -> Result<(), Error> {
    use std::os::unix::fs::MetadataExt as _;

    let path = &place(database)?;
    let unreadable = |e: std::io::Error| Error::Unavailable(format!("cannot look at {}: {e}", path.display()));
    let found = rustix::fs::statfs(path).map_err(|e| unreadable(e.into()))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "magic numbers have 32 bits")]
    let magic = found.f_type as u32;
    let device = std::fs::metadata(path).map_err(unreadable)?.dev();
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match kind(magic, || served_as(&mounts(), device)) {
        Some(name) => Err(Error::Refused(format!(
            "{} is on {name}, a network file system: its locks do not keep two hosts apart; use a local disk",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The file, or the folder that it would stand in, behind all links.
#[cfg(target_os = "linux")]
fn place(database: &Path) -> Result<PathBuf, Error> {
    let mut path = file::resolved(database)?;
    if !path.exists() {
        path.pop();
    }
    Ok(path)
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "the signature of the other one")]
pub(crate) fn refuse(_: &Path) -> Result<(), Error> {
    Ok(())
}

/// The name of a file system that is refused. `served` is asked only where a program serves it.
#[cfg(target_os = "linux")]
fn kind(magic: u32, served: impl FnOnce() -> Option<String>) -> Option<String> {
    if magic == FUSE {
        let name = served().unwrap_or_else(|| "FUSE".to_owned());
        return (!LOCAL.contains(&name.as_str())).then_some(name);
    }
    NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| (*name).to_owned())
}

/// The type of a mounted device, from the kernel's table of mounts.
#[cfg(target_os = "linux")]
fn served_as(mounts: &str, device: u64) -> Option<String> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    mounts.lines().rev().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        (mount.split(' ').nth(2) == Some(number.as_str())).then(|| source.split(' ').next().map(str::to_owned))?
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use aetheris_harness::Folder;

    use super::*;

    /// A link on a local disk to a file on another host is on another host.
    #[test]
    fn a_database_is_where_its_links_lead() {
        let top = Folder::new("network");
        let (near, far) = (top.join("near"), top.join("far"));
        std::fs::create_dir_all(&near).unwrap();
        std::fs::create_dir(&far).unwrap();
        let (near, far) = (near.canonicalize().unwrap(), far.canonicalize().unwrap());
        std::os::unix::fs::symlink(&far, near.join("folder")).unwrap();
        std::os::unix::fs::symlink(far.join("other.db"), near.join("aetheris.db")).unwrap();
        assert_eq!(place(&near.join("new.db")).unwrap(), near);
        assert_eq!(place(&near.join("folder").join("new.db")).unwrap(), far);
        assert!(place(&near.join("aetheris.db")).is_err(), "a link that leads to nothing is not looked behind");
        std::fs::write(far.join("other.db"), "").unwrap();
        assert_eq!(place(&near.join("aetheris.db")).unwrap(), far.join("other.db"));
        refuse(&near.join("aetheris.db")).unwrap();
    }

    #[test]
    fn what_a_program_serves_is_known_by_its_name() {
        let mounts = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n\
                      40 35 0:52 / /far rw - fuse.sshfs host:/ rw\n41 35 0:53 / /near rw - fuse.fuse-overlayfs x rw\n";
        let device = |minor| rustix::fs::makedev(0, minor);
        assert_eq!(served_as(mounts, device(52)).as_deref(), Some("fuse.sshfs"));
        assert_eq!(served_as(mounts, device(54)), None);
        assert_eq!(kind(FUSE, || served_as(mounts, device(52))).as_deref(), Some("fuse.sshfs"));
        assert_eq!(kind(FUSE, || served_as(mounts, device(53))), None);
        assert_eq!(kind(FUSE, || None).as_deref(), Some("FUSE"));
        assert_eq!(kind(0x6969, || None).as_deref(), Some("NFS"));
        assert_eq!(kind(0xef53, || None), None);
    }
}

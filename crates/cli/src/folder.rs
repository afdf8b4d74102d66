//! A data folder: what stands in it beside what the store keeps, and that it is there after a power loss.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use crate::wiring;

/// The name of the file whose lock a `dev` process or a restore holds ([`crate::lock`]).
pub(crate) fn lock_name() -> String {
    of_folder(wiring::LOCK)
}

/// The name of the file that names the process ([`crate::pid`]).
pub(crate) fn pid_name() -> String {
    of_folder(wiring::PID)
}

/// Whatever the database of a folder is called: what is done to `aetheris.db*` is not done to it.
fn of_folder(kind: &str) -> String {
    format!("aetheris.{kind}")
}

/// Makes a folder and those above it that are missing. Payloads stand in it: other users of the machine have no
/// business there. One that exists keeps the permissions that its owner gave it.
///
/// A new name is durable when the folder that it stands in is synced: else the first start after a power loss finds no
/// folder, and nothing of what was accepted.
///
/// # Errors
/// It cannot be made, or the disk did not keep it.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    make_and(folder, &mut |parent| File::open(parent)?.sync_all())
}

/// The same; `sync` makes durable what was made in a folder.
fn make_and(folder: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_and(parent, sync)?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match folder.is_dir() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::NotADirectory, "it exists and is not a folder")),
        },
        Err(error) => Err(error),
        Ok(()) => sync(parent),
    }
}

/// Opens a file of a folder to read and write it. It is made where it is missing, and then belongs to those who have the
/// folder as far as this process may give it to them: whoever runs a restore is often somebody else than who serves.
///
/// # Errors
/// It cannot be opened or made.
pub(crate) fn open(folder: &Path, name: &str) -> io::Result<File> {
    let path = folder.join(name);
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    match options.clone().create_new(true).open(&path) {
        Ok(file) => {
            let of = std::fs::metadata(folder)?;
            if fchown(&file, Some(of.uid()), Some(of.gid())).is_ok() {
                // Some file systems know of no modes.
                let _set = file.set_permissions(Permissions::from_mode(of.mode() & 0o660 | 0o600));
            }
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(&path),
        failed => failed,
    }
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;
    use crate::wiring::ENDINGS;

    #[test]
    fn the_manual_names_whatever_stands_in_the_folder() {
        let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
        let manual = std::fs::read_to_string(manual).unwrap();
        let beside = ENDINGS.iter().map(|ending| format!("aetheris.db{ending}"));
        let others = ["aetheris.db", "aetheris.seen", &lock_name(), &pid_name(), "aetheris.db.before-restore-…"]
            .map(str::to_owned);
        for name in beside.chain(others).chain([format!("aetheris.{}/", wiring::LIVE)]) {
            assert!(manual.contains(&format!("| `{name}` |")), "{name} has no row in docs/operations.md");
        }
    }

    #[test]
    fn a_file_of_a_folder_is_for_those_who_have_the_folder() {
        let top = Folder::new("shared");
        // Only root may give a file to others.
        let other = if rustix::process::geteuid().is_root() { Some(65_534) } else { None };
        for (mode, of_file) in [(0o2_770, 0o660), (0o755, 0o640), (0o700, 0o600)] {
            std::fs::set_permissions(&top, Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(&top, other, other).unwrap();
            for _ in 0..2 {
                let found = open(&top, &lock_name()).unwrap().metadata().unwrap();
                assert_eq!(found.mode() & 0o777, of_file);
                assert!(other.is_none_or(|other| (found.uid(), found.gid()) == (other, other)));
            }
            std::fs::remove_file(top.join(lock_name())).unwrap();
        }
        std::fs::remove_dir_all(&top).unwrap();
        assert!(open(&top, &lock_name()).is_err());
    }

    #[test]
    fn a_new_folder_is_durable_in_the_one_that_it_stands_in() {
        let top = Folder::new("durable");
        let folder = top.join("a").join("b");
        let mut synced = Vec::new();
        let mut sync = |parent: &Path| {
            let made = std::fs::read_dir(parent)?.count();
            synced.push((parent.to_owned(), made));
            Ok(())
        };
        make_and(&folder, &mut sync).unwrap();
        make_and(&folder, &mut sync).unwrap();
        assert_eq!(synced, [(top.to_path_buf(), 1), (top.join("a"), 1)], "once each, when the new name stands there");
        let failed = make_and(&folder.join("c"), &mut |_| Err(io::Error::other("the disk did not keep it")));
        assert_eq!(failed.unwrap_err().to_string(), "the disk did not keep it");
    }

    #[test]
    fn missing_folders_are_made_for_their_owner_alone_and_others_are_left() {
        let top = Folder::new("folder");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let before = mode(&top);
        let folder = top.join("a").join("b");
        make(&folder).unwrap();
        make(&folder).unwrap();
        assert_eq!((mode(&top), mode(&top.join("a")), mode(&folder)), (before, 0o700, 0o700));
        std::fs::write(folder.join("file"), "").unwrap();
        for below in [folder.join("file"), folder.join("file").join("c")] {
            let error = make(&below).unwrap_err();
            assert!(error.to_string().ends_with("is not a folder"), "{error}");
        }
    }
}

//! Where the processes of one database listen, so that no tool of any of them calls one of them.
//!
//! Beside the database is a folder with one file for each process that listens: its addresses, under an
//! exclusive lock that it holds for as long as it lives. The kernel releases the lock with the process, however
//! that ends, so that a file which nobody locks says nothing. "Any address" means other addresses in another network
//! namespace: a process that listens there says which ones those are where it is.
//!
//! What a running process says can be removed. So it looks every second whether its file still stands, and writes it
//! again, and ends if it cannot; and while a folder that was there is gone, or was made anew so lately that not everybody may have noticed,
//! nothing is called. Where a file alone is gone, what it said is believed for as long as its process may take to notice. A
//! process that ends leaves its file: unlocked it says that nobody is there, and whoever starts next removes it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use aetheris_adapters::OwnAddresses;
use aetheris_core::id::InstanceId;
use aetheris_core::limits;
use tokio::time::{Instant, sleep};

use crate::error::Error;
use crate::wiring::LIVE;

/// How often a file is read again that was replaced meanwhile: its process does so once a second at most.
const READS_MAX: usize = 8;

/// What this process says of itself, and what it reads of the others.
#[derive(Debug, Default)]
pub(crate) struct ListenAddresses {
    /// Where all processes of the database look; none for a store in memory, which is one process's own.
    folder: Option<Live>,
    heard: Mutex<BTreeMap<PathBuf, Heard>>,
    own: Mutex<Own>,
    seen: Mutex<Option<Seen>>,
}

/// What the file of a live process has said.
#[derive(Debug, Clone)]
struct Heard {
    addresses: Vec<SocketAddr>,
    /// When it was first missed.
    missing: Option<Instant>,
}

/// What a file says.
enum Says {
    /// Its process lives and listens there.
    At(Vec<SocketAddr>),
    /// Nobody holds it: its process is dead.
    Dead,
    /// It is not there.
    Missing,
}

/// The folder of a database's listeners. It is for those who have the database.
#[derive(Debug, Clone)]
struct Live {
    database: PathBuf,
    path: PathBuf,
}

#[derive(Debug, Default)]
struct Own {
    addresses: Vec<SocketAddr>,
    held: Option<Held>,
}

/// The file of this process, and its lock.
#[derive(Debug)]
struct Held {
    file: File,
    instance: InstanceId,
    path: PathBuf,
    said: Vec<SocketAddr>,
}

/// The folder as it was seen last.
#[derive(Debug, Clone, Copy)]
struct Seen {
    id: FolderId,
    /// When it was first seen in the place of another.
    replaced: Option<Instant>,
}

/// Device, number and birth: numbers are given again.
type FolderId = (u64, u64, Option<SystemTime>);

impl ListenAddresses {
    /// Of the processes of a database.
    pub(crate) fn beside(database: &Path) -> Self {
        let path = crate::wiring::in_folder_of(database, LIVE);
        let seen = id(&path).ok().map(|id| Seen { id, replaced: None });
        Self {
            folder: Some(Live { database: database.to_owned(), path }),
            heard: Mutex::default(),
            own: Mutex::default(),
            seen: Mutex::new(seen),
        }
    }

    /// Says where this process is about to listen. When this returns, every process of the database knows.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn announce(&self, instance: InstanceId, address: SocketAddr) -> Result<(), Error> {
        let mut own = self.own();
        own.addresses.push(address);
        let Some(folder) = &self.folder else { return Ok(()) };
        let failed = |e| anyhow::anyhow!("{}: this process cannot say where it listens: {e}", folder.path.display());
        folder.make(true).map_err(failed)?;
        own.held = Some(folder.publish(instance, reached_at(&own.addresses).map_err(failed)?).map_err(failed)?);
        Ok(self.believed(folder).map_err(failed)?)
    }

    /// Keeps what was announced in its place for as long as it is awaited.
    ///
    /// # Errors
    /// It could not be put back for [`limits::LISTENERS_SETTLE`]: who listens unseen would be called by the tools of the
    /// other processes.
    pub(crate) async fn keep_announced(&self) -> io::Result<Infallible> {
        let Some(folder) = &self.folder else { return std::future::pending().await };
        let mut failing_since = None;
        loop {
            sleep(limits::LISTENERS_LOOK.to_std()).await;
            match self.announce_again() {
                Ok(again) => {
                    failing_since = None;
                    if again {
                        let folder = folder.path.display();
                        tracing::warn!(%folder, "the file that says where this process listens was removed, or its addresses have changed; it was written again");
                    }
                }
                Err(error) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= limits::LISTENERS_SETTLE.to_std() {
                        let gone = "what says where this process listens is gone, and cannot be written";
                        return Err(io::Error::new(
                            error.kind(),
                            format!("{}: {gone}: {error}", folder.path.display()),
                        ));
                    }
                }
            }
        }
    }

    /// Writes the file of this process again where it does not stand any more, or is out of date;
    /// whether that was so.
    fn announce_again(&self) -> io::Result<bool> {
        let mut own = self.own();
        let (Some(folder), Some(held)) = (&self.folder, &own.held) else { return Ok(false) };
        let number = |metadata: &std::fs::Metadata| (metadata.dev(), metadata.ino());
        // Asking for them takes an open file: what was said stands while there is none.
        let reached = reached_at(&own.addresses).unwrap_or_else(|_| held.said.clone());
        match std::fs::metadata(&held.path) {
            Ok(found) if number(&found) == number(&held.file.metadata()?) && reached == held.said => return Ok(false),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
        folder.make(false)?;
        own.held = Some(folder.publish(held.instance, reached)?);
        Ok(true)
    }

    /// Whether the folder can be believed.
    fn believed(&self, folder: &Live) -> io::Result<()> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match id(&folder.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if seen.is_none() {
                    // Nobody has ever listened.
                    return Ok(());
                }
                // For those who listen, and for whoever asks next where nobody does.
                folder.make(false)?;
                id(&folder.path)?
            }
            found => found?,
        };
        let now = seen.get_or_insert(Seen { id: found, replaced: None });
        if now.id != found {
            *now = Seen { id: found, replaced: Some(Instant::now()) };
        }
        match now.replaced {
            Some(when) if when.elapsed() < limits::LISTENERS_SETTLE.to_std() => {
                Err(io::Error::other(format!("{} was removed a moment ago", folder.path.display())))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnAddresses for ListenAddresses {
    fn listening(&self) -> io::Result<Vec<SocketAddr>> {
        let mut all = self.own().addresses.clone();
        let Some(folder) = &self.folder else { return Ok(all) };
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        // Once it can be believed again, everybody has noticed.
        self.believed(folder).inspect_err(|_| heard.clear())?;
        let mut live = 0;
        for path in files(&folder.path)? {
            match says(&path).map_err(|error| unreadable(&path, &error))? {
                Says::At(addresses) => {
                    live += 1;
                    heard.insert(path, Heard { addresses, missing: None });
                }
                Says::Dead => drop(heard.remove(&path)),
                Says::Missing => {}
            }
        }
        if live > limits::LISTENERS_MAX {
            return Err(io::Error::other(format!("{} has too many files", folder.path.display())));
        }
        let now = Instant::now();
        // Gone under a process that lives: it writes its file again, maybe.
        heard.retain(|path, heard| {
            path.exists() || now.duration_since(*heard.missing.get_or_insert(now)) < limits::LISTENERS_SETTLE.to_std()
        });
        all.extend(heard.values().flat_map(|heard| &heard.addresses));
        Ok(all)
    }
}

/// Reads a file of a process, whose lock and name belong together: it may be replaced meanwhile.
fn says(path: &Path) -> io::Result<Says> {
    for _ in 0..READS_MAX {
        let Some(mut file) = existing(path)? else { return Ok(Says::Missing) };
        match file.try_lock_shared() {
            Ok(()) => {
                let number = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
                let opened = number(file.metadata()?);
                if std::fs::metadata(path).map(number).is_ok_and(|now| now != opened) {
                    continue;
                }
                return Ok(Says::Dead);
            }
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                return Ok(Says::At(serde_json::from_str(&text)?));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other("it is replaced all the time"))
}

/// Somebody else's file, who may live: only its owner, or whoever may remove it, can say more.
fn unreadable(path: &Path, error: &io::Error) -> io::Error {
    let owner = std::fs::metadata(path).map(|found| format!(" (of user {})", found.uid())).unwrap_or_default();
    let what = format!("{}{owner} cannot be read: {error}; if its process has ended, remove the file", path.display());
    io::Error::new(error.kind(), what)
}

impl Live {
    /// Makes the folder where it is not there: with those above it, or only beside a database that is still there.
    fn make(&self, above: bool) -> io::Result<()> {
        match DirBuilder::new().recursive(above).mode(0o700).create(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                self.give(&File::open(&self.path)?, 0o111);
                Ok(())
            }
        }
    }

    /// Writes the file under a name that nobody looks at, and gives it its name when it is locked and complete.
    fn publish(&self, instance: InstanceId, said: Vec<SocketAddr>) -> io::Result<Held> {
        remove_dead(&self.path);
        let (unseen, path) = (self.path.join(format!(".{instance}")), self.path.join(instance.to_string()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&unseen)?;
        self.give(&file, 0);
        file.lock()?;
        file.write_all(&serde_json::to_vec(&said)?)?;
        std::fs::rename(&unseen, &path)?;
        Ok(Held { file, instance, path, said })
    }

    /// Gives what was made to those who have the database, as far as this process may; `enter` is what of a folder lets
    /// those in who may read it.
    fn give(&self, made: &File, enter: u32) {
        let Ok(database) = std::fs::metadata(&self.database) else { return };
        let shared = database.mode() & 0o666;
        let mode = 0o600 | shared | (enter & (0o100 | shared >> 2));
        // Only root may give it to another owner.
        let given = fchown(made, Some(database.uid()), Some(database.gid()));
        if given.or_else(|_| fchown(made, None, Some(database.gid()))).is_ok() {
            // Some file systems know of no modes.
            let _set = made.set_permissions(Permissions::from_mode(mode));
        }
    }
}

/// Where a process is reached that listens there: at "any address", at each that its network namespace has now as well.
fn reached_at(listening: &[SocketAddr]) -> io::Result<Vec<SocketAddr>> {
    let mut reached = listening.to_vec();
    if listening.iter().any(|address| address.ip().is_unspecified()) {
        let interfaces: Vec<IpAddr> = if_addrs::get_if_addrs()?.iter().map(if_addrs::Interface::ip).collect();
        for any in listening.iter().filter(|address| address.ip().is_unspecified()) {
            reached.extend(interfaces.iter().map(|ip| SocketAddr::new(*ip, any.port())));
        }
    }
    reached.sort_unstable();
    reached.dedup();
    Ok(reached)
}

fn id(folder: &Path) -> io::Result<FolderId> {
    let metadata = std::fs::metadata(folder)?;
    Ok((metadata.dev(), metadata.ino(), metadata.created().ok()))
}

/// What cannot be looked at or removed is left: it keeps nobody from saying where it listens.
fn remove_dead(folder: &Path) {
    for path in files(folder).unwrap_or_default() {
        if existing(&path).is_ok_and(|file| file.is_some_and(|file| file.try_lock().is_ok())) {
            let _left = std::fs::remove_file(&path);
        }
    }
}

fn existing(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry?;
        let ours = !entry.file_name().as_encoded_bytes().starts_with(b".");
        if ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;

    #[test]
    fn the_folder_is_never_the_database_itself() {
        let folder = |name: &str| ListenAddresses::beside(Path::new(name)).folder.clone().unwrap().path;
        assert_eq!(folder("d/aetheris.db"), Path::new("d/aetheris.live"));
        assert_eq!(folder("d/aetheris.live"), Path::new("d/aetheris.live-live"));
        assert_eq!(folder("d/aetheris.sqlite"), Path::new("d/aetheris.sqlite-live"));
    }

    #[test]
    fn every_process_of_a_database_knows_where_the_live_ones_listen() {
        let folder = Folder::new("listen");
        let database = folder.join("aetheris.db");
        let [a, b]: [SocketAddr; 2] = ["127.0.0.1:1111", "[::]:2222"].map(|text| text.parse().unwrap());
        let worker = ListenAddresses::beside(&database);
        assert_eq!(worker.listening().unwrap(), []);
        let (first, second) = (ListenAddresses::beside(&database), ListenAddresses::beside(&database));
        first.announce(InstanceId::from_u128(1), a).unwrap();
        let mode = std::fs::metadata(folder.join("aetheris.live")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700, "nobody else says where this store listens");
        second.announce(InstanceId::from_u128(2), b).unwrap();
        // Beside what "any address" stands for here.
        let known = |of: &ListenAddresses| {
            let mut all = of.listening().unwrap();
            all.retain(|address| [a, b].contains(address));
            all.sort_unstable();
            all.dedup();
            all
        };
        for process in [&worker, &first, &second] {
            assert_eq!(known(process), [a, b]);
        }
        // However they end: their files are there, and nobody holds them.
        drop(first);
        assert_eq!(known(&worker), [b]);
        drop(second);
        assert_eq!((known(&worker), std::fs::read_dir(folder.join("aetheris.live")).unwrap().count()), (vec![], 2));
        let third = ListenAddresses::beside(&database);
        third.announce(InstanceId::from_u128(3), a).unwrap();
        assert_eq!(std::fs::read_dir(folder.join("aetheris.live")).unwrap().count(), 1);
        let alone = ListenAddresses::default();
        alone.announce(InstanceId::from_u128(4), b).unwrap();
        assert_eq!((known(&worker), known(&alone)), (vec![a], vec![b]));
        drop(third);
    }

    /// In another network namespace "any address" is other ones: each process has to be told which.
    #[test]
    fn any_address_is_every_one_that_the_process_has_where_it_listens() {
        let folder = Folder::new("listen-any");
        let server = ListenAddresses::beside(&folder.join("aetheris.db"));
        server.announce(InstanceId::from_u128(1), "0.0.0.0:2222".parse().unwrap()).unwrap();
        let known = ListenAddresses::beside(&folder.join("aetheris.db")).listening().unwrap();
        for own in ["0.0.0.0:2222", "127.0.0.1:2222"] {
            assert!(known.contains(&own.parse().unwrap()), "{own}: {known:?}");
        }
        assert!(!server.announce_again().unwrap(), "nothing has changed");
        server.own().held.as_mut().unwrap().said.push("192.0.2.1:2222".parse().unwrap());
        assert!(server.announce_again().unwrap(), "an address that is gone is said no more");
        assert_eq!(ListenAddresses::beside(&folder.join("aetheris.db")).listening().unwrap(), known);
        drop(server);
    }

    #[test]
    fn whoever_has_the_database_may_say_and_read_where_it_listens() {
        for (of_database, of_folder, of_file) in [(0o600, 0o700, 0o600), (0o660, 0o770, 0o660), (0o640, 0o750, 0o640)] {
            let top = Folder::new("listen-group");
            let database = top.join("aetheris.db");
            std::fs::write(&database, "").unwrap();
            std::fs::set_permissions(&database, Permissions::from_mode(of_database)).unwrap();
            let server = ListenAddresses::beside(&database);
            server.announce(InstanceId::from_u128(1), "127.0.0.1:1111".parse().unwrap()).unwrap();
            let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
            let live = top.join("aetheris.live");
            let found = (mode(&live), mode(&live.join(InstanceId::from_u128(1).to_string())));
            assert_eq!(found, (of_folder, of_file), "{of_database:o}");
            drop(server);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_removed_under_running_processes_is_written_again_and_nothing_is_called_meanwhile() {
        let folder = Folder::new("listen-gone");
        let (database, live) = (folder.join("aetheris.db"), folder.join("aetheris.live"));
        let address: SocketAddr = "127.0.0.1:1111".parse().unwrap();
        let early = ListenAddresses::beside(&database);
        assert_eq!(early.listening().unwrap(), [], "nobody has ever listened");
        let server = std::sync::Arc::new(ListenAddresses::beside(&database));
        server.announce(InstanceId::from_u128(1), address).unwrap();
        assert_eq!(early.listening().unwrap(), [address]);
        let late = ListenAddresses::beside(&database);
        let keeping = tokio::spawn({
            let server = std::sync::Arc::clone(&server);
            async move { server.keep_announced().await }
        });
        std::fs::remove_dir_all(&live).unwrap();
        for _ in 0..2 {
            for process in [&early, &late, &*server] {
                assert!(process.listening().unwrap_err().to_string().contains("was removed"));
            }
            sleep(limits::LISTENERS_LOOK.to_std() * 2).await;
        }
        for process in [&early, &late] {
            assert_eq!(process.listening().unwrap(), [address]);
        }
        // The file alone: whoever has heard of it goes by what it said until it stands again.
        std::fs::remove_file(live.join(InstanceId::from_u128(1).to_string())).unwrap();
        for process in [&early, &late] {
            assert_eq!(process.listening().unwrap(), [address]);
        }
        sleep(limits::LISTENERS_LOOK.to_std() * 2).await;
        assert_eq!(late.listening().unwrap(), [address]);
        assert!(live.join(InstanceId::from_u128(1).to_string()).exists());
        // Where nobody listens any more, a folder that is removed does not end all calls for ever.
        keeping.abort();
        assert!(keeping.await.unwrap_err().is_cancelled());
        drop(server);
        std::fs::remove_dir_all(&live).unwrap();
        assert!(late.listening().is_err());
        sleep(limits::LISTENERS_SETTLE.to_std()).await;
        assert_eq!(late.listening().unwrap(), []);
        // The database has gone with it: nothing is made in its place.
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(late.listening().is_err() && !folder.exists());
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_say_where_it_listens_stops_listening() {
        let folder = Folder::new("listen-unsaid");
        let live = folder.join("aetheris.live");
        let server = ListenAddresses::beside(&folder.join("aetheris.db"));
        server.announce(InstanceId::from_u128(1), "127.0.0.1:1111".parse().unwrap()).unwrap();
        std::fs::remove_dir_all(&live).unwrap();
        std::fs::write(&live, b"in its place").unwrap();
        let error = tokio::select! {
            ended = server.keep_announced() => ended.unwrap_err().to_string(),
            () = sleep(limits::LISTENERS_SETTLE.to_std() * 2) => panic!("it goes on"),
        };
        assert!(error.contains("aetheris.live: what says where this process listens is gone"), "{error}");
    }

    /// However long ago it failed before.
    #[tokio::test(start_paused = true)]
    async fn a_failure_that_has_passed_does_not_count_with_the_next() {
        let folder = Folder::new("listen-passed");
        let live = folder.join("aetheris.live");
        let server = std::sync::Arc::new(ListenAddresses::beside(&folder.join("aetheris.db")));
        server.announce(InstanceId::from_u128(1), "127.0.0.1:1111".parse().unwrap()).unwrap();
        let keeping = tokio::spawn(async move { server.keep_announced().await });
        for _ in 0..3 {
            std::fs::remove_dir_all(&live).unwrap();
            std::fs::write(&live, b"in its place").unwrap();
            sleep(limits::LISTENERS_SETTLE.to_std() / 2).await;
            std::fs::remove_file(&live).unwrap();
            sleep(limits::LISTENERS_SETTLE.to_std()).await;
            assert!(!keeping.is_finished() && live.join(InstanceId::from_u128(1).to_string()).exists());
        }
        keeping.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_gone_for_good_is_believed_for_as_long_as_its_process_may_take_to_notice() {
        let folder = Folder::new("listen-missed");
        let live = folder.join("aetheris.live");
        let address: SocketAddr = "127.0.0.1:1111".parse().unwrap();
        let server = ListenAddresses::beside(&folder.join("aetheris.db"));
        server.announce(InstanceId::from_u128(1), address).unwrap();
        let worker = ListenAddresses::beside(&folder.join("aetheris.db"));
        assert_eq!(worker.listening().unwrap(), [address]);
        sleep(limits::LISTENERS_SETTLE.to_std() * 10).await;
        std::fs::remove_file(live.join(InstanceId::from_u128(1).to_string())).unwrap();
        assert_eq!(worker.listening().unwrap(), [address], "missed just now");
        sleep(limits::LISTENERS_SETTLE.to_std() / 2).await;
        assert_eq!(worker.listening().unwrap(), [address]);
        sleep(limits::LISTENERS_SETTLE.to_std()).await;
        assert_eq!(worker.listening().unwrap(), []);
    }

    /// A look by root, a file that somebody has put there, a folder: none of them keeps a server from its start.
    #[test]
    fn what_others_have_left_keeps_nobody_from_saying_where_it_listens() {
        let folder = Folder::new("listen-left");
        let live = folder.join("aetheris.live");
        std::fs::create_dir_all(live.join("a-folder")).unwrap();
        for number in 0..=limits::LISTENERS_MAX {
            std::fs::write(live.join(format!("dead-{number}")), "[]").unwrap();
        }
        let worker = ListenAddresses::beside(&folder.join("aetheris.db"));
        assert_eq!(worker.listening().unwrap(), [], "the dead are not counted");
        let address: SocketAddr = "127.0.0.1:1111".parse().unwrap();
        let server = ListenAddresses::beside(&folder.join("aetheris.db"));
        server.announce(InstanceId::from_u128(1), address).unwrap();
        assert_eq!(worker.listening().unwrap(), [address]);
        assert_eq!(std::fs::read_dir(&live).unwrap().count(), 2, "the dead are gone");
    }

    #[test]
    fn what_cannot_be_read_is_no_answer() {
        let folder = Folder::new("listen-bad");
        let process = ListenAddresses::beside(&folder.join("aetheris.db"));
        let path = folder.join("aetheris.live");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("inst"), b"nonsense").unwrap();
        assert_eq!(process.listening().unwrap(), [], "nobody holds it");
        let held = File::open(path.join("inst")).unwrap();
        held.lock().unwrap();
        assert!(process.listening().is_err());
    }
}

//! The VFS: SQLite's calls to the file system, watched on their way to the real one. The only module with `unsafe`.

#![allow(unsafe_code, reason = "SQLite's interface to the file system is in C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::size_of;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rusqlite::ffi::{
    self, SQLITE_FULL, SQLITE_IOERR_FSYNC, SQLITE_IOERR_WRITE, SQLITE_OK, SQLITE_OPEN_CREATE, SQLITE_OPEN_MAIN_JOURNAL,
    SQLITE_OPEN_WAL, sqlite3_file, sqlite3_filename, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs,
};

use crate::watch::{Fault, Shared};

/// What is known of an open file, before the real VFS's own part of the same allocation.
#[repr(C)]
struct File {
    /// What SQLite sees.
    base: sqlite3_file,
    /// Leaked while the file is open; null where nobody watches it.
    handle: *mut Handle,
}

struct Handle {
    name: String,
    shared: Arc<Shared>,
    /// Whether the next sync syncs the folder too, as the real VFS does for new journals and logs.
    syncs_folder: bool,
}

/// Calls a function of the real VFS's part of a file.
macro_rules! pass {
    ($file:expr, $function:ident $(, $argument:expr)*) => {{
        let inner = inner($file);
        match (*(*inner).pMethods).$function {
            Some(function) => function(inner $(, $argument)*),
            None => ffi::SQLITE_IOERR,
        }
    }};
}

/// The VFS that was the default before, which does the work.
struct Real(*mut sqlite3_vfs);

// SAFETY: SQLite's own VFS is made to be called by every thread, and its address never changes.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Sync for Real {}

static REAL: OnceLock<Option<Real>> = OnceLock::new();
static WATCHES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

fn watches() -> MutexGuard<'static, Vec<Weak<Shared>>> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has what is done in its folder told to this, from the next file that is opened.
pub(crate) fn watch(shared: &Arc<Shared>) {
    install();
    let mut watches = watches();
    watches.retain(|watch| watch.strong_count() > 0);
    watches.push(Arc::downgrade(shared));
}

/// Who watches a folder.
pub(crate) fn watcher_of(folder: &Path) -> Option<Arc<Shared>> {
    let folder = folder.canonicalize().ok()?;
    watches().iter().filter_map(Weak::upgrade).find(|watch| watch.folder == folder)
}

/// Makes this VFS the default of the process, once.
fn install() {
    REAL.get_or_init(|| {
        // SAFETY: both calls are made to be called at any time. The VFS is copied from one that is complete, keeps all of
        // its functions but two, and lives for ever.
        unsafe {
            let real = ffi::sqlite3_vfs_find(ptr::null());
            if real.is_null() {
                return None;
            }
            let own = size_of::<File>();
            let ours = Box::leak(Box::new(sqlite3_vfs {
                szOsFile: (*real).szOsFile + c_int::try_from(own).unwrap_or(c_int::MAX),
                pNext: ptr::null_mut(),
                zName: c"aetheris-disk".as_ptr(),
                xOpen: Some(open),
                xDelete: Some(delete),
                ..*real
            }));
            if ffi::sqlite3_vfs_register(ours, 1) != SQLITE_OK {
                return None;
            }
            Some(Real(real))
        }
    });
}

/// The real VFS. There is one wherever one of the functions below is called, since only [`install`] names them.
fn real() -> *mut sqlite3_vfs {
    REAL.get().and_then(Option::as_ref).map_or(ptr::null_mut(), |real| real.0)
}

/// Who watches a file, and the file's name in its folder.
///
/// # Safety
/// The name is null or ends with a zero.
unsafe fn watcher(name: *const c_char) -> Option<(Arc<Shared>, String)> {
    if name.is_null() {
        return None;
    }
    // SAFETY: by the condition above.
    let path = unsafe { CStr::from_ptr(name) }.to_str().ok().map(Path::new)?;
    let shared = watches().iter().filter_map(Weak::upgrade).find(|watch| path.parent() == Some(&watch.folder))?;
    Some((shared, path.file_name()?.to_str()?.to_owned()))
}

/// The real VFS's part of a file.
///
/// # Safety
/// The file is one that [`open`] was given: its allocation has room for both parts.
unsafe fn inner(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: by the condition above.
    unsafe { file.cast::<u8>().add(size_of::<File>()).cast() }
}

/// What is known of a file.
///
/// # Safety
/// The file is one that [`open`] has opened and nobody has closed; SQLite uses it in one thread at a time.
unsafe fn handle<'f>(file: *mut sqlite3_file) -> Option<&'f mut Handle> {
    // SAFETY: by the condition above.
    unsafe { (*file.cast::<File>()).handle.as_mut() }
}

unsafe extern "C" fn open(
    _vfs: *mut sqlite3_vfs,
    name: sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    given: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives a name that is null or ends with a zero, and an allocation of `szOsFile` bytes.
    unsafe {
        let ours = file.cast::<File>();
        (*ours).base.pMethods = ptr::null();
        (*ours).handle = ptr::null_mut();
        let watcher = watcher(name);
        let new = watcher.as_ref().is_some_and(|(shared, name)| !shared.folder.join(name).exists());
        let vfs = real();
        let Some(open) = (*vfs).xOpen else { return ffi::SQLITE_CANTOPEN };
        let done = open(vfs, name, inner(file), flags, given);
        if done != SQLITE_OK {
            return done;
        }
        if let Some((shared, name)) = watcher {
            if new {
                shared.created(&name);
            }
            let journal = flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL) != 0;
            let syncs_folder = journal && flags & SQLITE_OPEN_CREATE != 0;
            (*ours).handle = Box::into_raw(Box::new(Handle { name, shared, syncs_folder }));
        }
        (*ours).base.pMethods = &raw const METHODS;
        SQLITE_OK
    }
}

unsafe extern "C" fn delete(_vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite gives a name that ends with a zero.
    unsafe {
        let vfs = real();
        let Some(delete) = (*vfs).xDelete else { return ffi::SQLITE_IOERR_DELETE };
        let done = delete(vfs, name, sync);
        if done == SQLITE_OK
            && let Some((shared, name)) = watcher(name)
        {
            shared.deleted(&name, sync != 0);
        }
        done
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: an open file; what `open` has leaked is taken back once, since SQLite closes a file once.
    unsafe {
        let ours = file.cast::<File>();
        if !(*ours).handle.is_null() {
            drop(Box::from_raw((*ours).handle));
            (*ours).handle = ptr::null_mut();
        }
        pass!(file, xClose)
    }
}

unsafe extern "C" fn write(file: *mut sqlite3_file, bytes: *const c_void, amount: c_int, at: sqlite3_int64) -> c_int {
    // SAFETY: an open file, and `amount` bytes that can be read.
    unsafe {
        let handle = handle(file);
        match handle.as_ref().and_then(|handle| handle.shared.fails_write(&handle.name)) {
            Some(Fault::Full) => return SQLITE_FULL,
            Some(Fault::Write | Fault::Sync) => return SQLITE_IOERR_WRITE,
            None => {}
        }
        let done = pass!(file, xWrite, bytes, amount, at);
        if let (SQLITE_OK, Some(handle)) = (done, handle) {
            let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), usize::try_from(amount).unwrap_or(0));
            handle.shared.wrote(&handle.name, u64::try_from(at).unwrap_or(0), bytes);
        }
        done
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, length: sqlite3_int64) -> c_int {
    // SAFETY: an open file.
    unsafe {
        let done = pass!(file, xTruncate, length);
        if let (SQLITE_OK, Some(handle)) = (done, handle(file)) {
            handle.shared.truncated(&handle.name, u64::try_from(length).unwrap_or(0));
        }
        done
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: an open file.
    unsafe {
        let Some(handle) = handle(file) else { return pass!(file, xSync, flags) };
        if handle.shared.fails_sync(&handle.name).is_some() {
            handle.shared.sync_failed(&handle.name);
            return SQLITE_IOERR_FSYNC;
        }
        let done = if handle.shared.really_syncs() { pass!(file, xSync, flags) } else { SQLITE_OK };
        if done == SQLITE_OK {
            handle.shared.synced(&handle.name, std::mem::take(&mut handle.syncs_folder));
        }
        done
    }
}

/// Functions that only pass on what they are given.
macro_rules! passing {
    ($($name:ident $function:ident ($($argument:ident: $kind:ty),*);)*) => {
        $(unsafe extern "C" fn $name(file: *mut sqlite3_file $(, $argument: $kind)*) -> c_int {
            // SAFETY: SQLite gives an open file and what this function is to be given.
            unsafe { pass!(file, $function $(, $argument)*) }
        })*
    };
}

passing! {
    read xRead(to: *mut c_void, amount: c_int, at: sqlite3_int64);
    file_size xFileSize(size: *mut sqlite3_int64);
    lock xLock(level: c_int);
    unlock xUnlock(level: c_int);
    is_reserved xCheckReservedLock(answer: *mut c_int);
    control xFileControl(what: c_int, with: *mut c_void);
    sector_size xSectorSize();
    characteristics xDeviceCharacteristics();
    map_shared xShmMap(region: c_int, size: c_int, extend: c_int, at: *mut *mut c_void);
    lock_shared xShmLock(offset: c_int, count: c_int, flags: c_int);
    unmap_shared xShmUnmap(delete: c_int);
}

unsafe extern "C" fn barrier(file: *mut sqlite3_file) {
    // SAFETY: SQLite gives an open file.
    unsafe {
        let inner = inner(file);
        if let Some(barrier) = (*(*inner).pMethods).xShmBarrier {
            barrier(inner);
        }
    }
}

/// Version 2: with shared memory, and without mapping of files, whose writes nobody would see.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(is_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(map_shared),
    xShmLock: Some(lock_shared),
    xShmBarrier: Some(barrier),
    xShmUnmap: Some(unmap_shared),
    xFetch: None,
    xUnfetch: None,
};

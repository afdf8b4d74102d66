/// Whether the code is to be another here. Added to the root of each crate that has mutants. Where a test is to tell what it
/// reaches, it leaves a line for each mutant that it could notice.
#[doc(hidden)]
pub(crate) fn __mutant(id: u32) -> bool {
    use ::std::collections::BTreeSet;
    use ::std::sync::{LazyLock, Mutex, PoisonError};
    static CHOSEN: LazyLock<u32> =
        LazyLock::new(|| ::std::env::var("MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(0));
    static REACHED: LazyLock<Option<(::std::path::PathBuf, Mutex<BTreeSet<u32>>)>> = LazyLock::new(|| {
        let folder = ::std::env::var_os("MUTANTS_REACHED")?;
        Some((::std::path::Path::new(&folder).join(::std::process::id().to_string()), Mutex::default()))
    });
    if let Some((path, seen)) = &*REACHED
        && seen.lock().unwrap_or_else(PoisonError::into_inner).insert(id)
    {
        let of = |name: &str| ::std::env::var(name).unwrap_or_default();
        let line = ::std::format!("{id}\t{}\t{}\n", of("NEXTEST_BINARY_ID"), of("NEXTEST_TEST_NAME"));
        let file = ::std::fs::OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| ::std::io::Write::write_all(&mut file, line.as_bytes()));
    }
    *CHOSEN == id
}

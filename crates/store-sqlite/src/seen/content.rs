//! What stands in the file, and whether it fits what the database says.

use std::path::Path;

use super::Custody;
use crate::error::Error;

/// The file as it is first written: fixed places, so that a number is written over in place.
const FIRST: &str = "aetheris.seen 1\nfolder  ";
const FOLDER_AT: u64 = 24;
pub(super) const OPENING_AT: u64 = 65;
pub(super) const NEXT_AT: u64 = 106;
pub(super) const WRITES_AT: u64 = 147;
pub(super) const GENERATION_AT: u64 = 176;
/// Everything in it, in bytes.
pub(super) const LENGTH: usize = 187;

/// What the database says of its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Known {
    pub(crate) copied: bool,
    pub(crate) folder: Option<u128>,
    pub(crate) generation: u32,
    pub(super) opening: Option<u128>,
    pub(super) writes: u64,
}

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Content {
    pub(crate) folder: u128,
    pub(crate) generation: u32,
    pub(super) next: u128,
    /// Zero until the first opening is through.
    pub(super) opening: u128,
    pub(super) writes: u64,
}

/// How an opening goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Under a name that is new to the file.
    Adopt(u128),
    /// The file and the database belong together.
    GoOn,
}

impl Content {
    /// All of the file.
    pub(super) fn text(&self) -> String {
        format!(
            "{FIRST}{}\nopening {}\nnext    {}\nwrites  {:020}\nlife    {:010}\n",
            name(self.folder),
            name(self.opening),
            name(self.next),
            self.writes,
            self.generation
        )
    }
}

/// A way on besides a restore.
const MOVED: &str = "; `--moved` says that this folder was moved and its original is gone";

fn refused(why: &str, besides: &str) -> Result<Start, Error> {
    Err(Error::Refused(format!(
        "{why}. What was done since would be done again. `aetheris restore FILE` puts a backup in place and holds its \
         unfinished jobs{besides}"
    )))
}

/// Whether database and file belong together. Each refusal names what helps, and nothing else.
pub(super) fn decide(
    known: Option<&Known>,
    seen: Option<&Content>,
    custody: Custody,
    path: &Path,
) -> Result<Start, Error> {
    let file = path.display();
    let Some(known) = known else {
        return match seen {
            None => Ok(Start::Adopt(custody.folder)),
            Some(seen) if seen.opening == 0 => Ok(Start::Adopt(seen.folder)),
            Some(_) => refused(
                &format!(
                    "{file} says that there was a database here, and there is none: it was lost, or a restore was cut \
                     short. To start from nothing, move all of the folder's files away"
                ),
                "",
            ),
        };
    };
    if known.copied {
        return Err(Error::Refused(
            "it is a backup and not a database in use: `aetheris restore FILE --data DIR` puts it in place".to_owned(),
        ));
    }
    match (known.folder, seen) {
        (None, None) => Ok(Start::Adopt(custody.folder)),
        // The first opening of this folder was cut short.
        (None, Some(seen)) if seen.opening == 0 => Ok(Start::Adopt(seen.folder)),
        (None, Some(_)) => refused(
            &format!(
                "{file} has seen another database here: this one is new, or older than the folder. To start from \
                 nothing, move all of the folder's files away"
            ),
            "",
        ),
        (Some(_), None) if custody.moved => Ok(Start::Adopt(custody.folder)),
        (Some(_), None) => refused(
            &format!("this database has been used before, but {file}, which belongs beside it, is missing"),
            MOVED,
        ),
        (Some(folder), Some(seen)) if folder != seen.folder && custody.moved => Ok(Start::Adopt(custody.folder)),
        (Some(folder), Some(seen)) if folder != seen.folder => {
            refused(&format!("the database is not the one that {file} has seen: it comes from another folder"), MOVED)
        }
        (Some(_), Some(seen)) => {
            let opened = known.opening == Some(seen.opening) || known.opening == Some(seen.next);
            match (opened, known.writes >= seen.writes) {
                (true, true) => Ok(Start::GoOn),
                (true, false) => refused(
                    &format!(
                        "the database is older than what {file} has seen of it ({} writes here, {} seen): it was put \
                         back from a copy, and only a restore may do that",
                        known.writes, seen.writes
                    ),
                    "",
                ),
                (false, _) => refused(
                    &format!(
                        "the database is older than what {file} has seen of it: it was put back from a copy, which only \
                         a restore may do, or a restore was cut short"
                    ),
                    "",
                ),
            }
        }
    }
}

/// `None` for a file in which nothing stands yet.
pub(super) fn read(text: &str, path: &Path) -> Result<Option<Content>, Error> {
    let damaged = || {
        Error::Refused(format!(
            "{} is damaged: it cannot be said whether the database is its newest. `aetheris restore FILE` puts a backup \
             in place, or the database that is there, and holds its unfinished jobs",
            path.display()
        ))
    };
    // What was written last may have lost its bytes with the power, and not its length.
    if text.bytes().all(|byte| byte == 0) {
        return Ok(None);
    }
    if text.len() != LENGTH || !text.starts_with(FIRST) {
        return Err(damaged());
    }
    let field = |at: u64, length: usize| {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        text.get(at..at.saturating_add(length)).unwrap_or_default()
    };
    let id = |at| u128::from_str_radix(field(at, 32), 16).map_err(|_| damaged());
    Ok(Some(Content {
        folder: id(FOLDER_AT)?,
        generation: field(GENERATION_AT, 10).parse().map_err(|_| damaged())?,
        next: id(NEXT_AT)?,
        opening: id(OPENING_AT)?,
        writes: field(WRITES_AT, 20).parse().map_err(|_| damaged())?,
    }))
}

/// A name as it stands in the file.
pub(super) fn name(id: u128) -> String {
    format!("{id:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUSTODY: Custody = Custody { folder: 9, moved: false, opening: 99 };

    fn used(opening: u128, writes: u64) -> Known {
        Known { copied: false, folder: Some(1), generation: 1, opening: Some(opening), writes }
    }

    fn seen(opening: u128, next: u128, writes: u64) -> Content {
        Content { folder: 1, generation: 1, next, opening, writes }
    }

    fn says(known: Known, seen: Option<Content>, custody: Custody) -> Result<Start, String> {
        decide(Some(&known), seen.as_ref(), custody, Path::new("d/aetheris.seen")).map_err(|error| error.to_string())
    }

    /// What a refusal says, which names a restore, and `--moved` only where it helps.
    fn refused(known: Known, seen: Option<Content>, custody: Custody, moved_helps: bool) -> String {
        let refused = says(known, seen, custody).unwrap_err();
        assert!(refused.contains("aetheris restore") && refused.contains("--moved") == moved_helps, "{refused}");
        refused
    }

    #[test]
    fn a_file_reads_as_it_was_written_and_one_that_lost_its_bytes_as_empty() {
        let (path, content) = (Path::new("d/aetheris.seen"), seen(5, 6, 7));
        assert_eq!(content.text().len(), LENGTH);
        assert_eq!(read(&content.text(), path).unwrap(), Some(content));
        for nothing in [String::new(), "\0".repeat(LENGTH), "\0".repeat(9)] {
            assert_eq!(read(&nothing, path).unwrap(), None);
        }
        for damaged in [&content.text()[1..], "\0aetheris"] {
            assert!(read(damaged, path).unwrap_err().to_string().contains("is damaged"));
        }
    }

    #[test]
    fn a_folder_is_adopted_once() {
        assert_eq!(says(Known::default(), None, CUSTODY), Ok(Start::Adopt(9)));
        // Cut short before the database knew of it.
        assert_eq!(says(Known::default(), Some(seen(0, 5, 0)), CUSTODY), Ok(Start::Adopt(1)));
        for moved in [false, true] {
            refused(Known::default(), Some(seen(5, 5, 0)), Custody { moved, ..CUSTODY }, false);
        }
    }

    #[test]
    fn an_opening_may_be_cut_short_anywhere() {
        for (opening, next) in [(5, 5), (5, 6), (4, 5)] {
            assert_eq!(says(used(5, 7), Some(seen(opening, next, 7)), CUSTODY), Ok(Start::GoOn), "{opening} {next}");
        }
        assert!(says(used(5, 7), Some(seen(6, 6, 7)), CUSTODY).is_err());
        assert!(says(used(5, 7), Some(seen(6, 7, 7)), CUSTODY).is_err());
    }

    #[test]
    fn an_older_database_is_refused_moved_or_not() {
        assert_eq!(says(used(5, 8), Some(seen(5, 5, 7)), CUSTODY), Ok(Start::GoOn));
        for moved in [false, true] {
            for opening in [5, 6] {
                let older = refused(used(5, 6), Some(seen(opening, opening, 7)), Custody { moved, ..CUSTODY }, false);
                assert!(older.contains("older than what d/aetheris.seen has seen"), "{older}");
            }
        }
    }

    #[test]
    fn a_folder_whose_database_is_gone_gets_no_new_one() {
        let path = Path::new("d/aetheris.seen");
        for (seen, moved) in [(seen(5, 5, 7), false), (seen(5, 6, 7), true)] {
            let refused = decide(None, Some(&seen), Custody { moved, ..CUSTODY }, path).unwrap_err().to_string();
            assert!(refused.contains("and there is none") && refused.contains("aetheris restore"), "{refused}");
        }
        assert_eq!(decide(None, Some(&seen(0, 5, 0)), CUSTODY, path).unwrap(), Start::Adopt(1));
        assert_eq!(decide(None, None, CUSTODY, path).unwrap(), Start::Adopt(9));
    }

    #[test]
    fn a_used_database_elsewhere_was_moved_or_is_a_copy() {
        let moved = Custody { moved: true, ..CUSTODY };
        for found in [None, Some(Content { folder: 2, ..seen(5, 5, 7) })] {
            refused(used(5, 7), found, CUSTODY, true);
            assert_eq!(says(used(5, 7), found, moved), Ok(Start::Adopt(9)));
        }
        let copy = Known { copied: true, ..used(5, 7) };
        for custody in [CUSTODY, moved] {
            assert!(refused(copy, Some(seen(5, 5, 7)), custody, false).contains("is a backup"));
        }
    }
}

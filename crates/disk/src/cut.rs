//! What a power cut leaves.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use aetheris_harness::SplitMix64;

use crate::tape::{Op, Tape};

/// What a disk writes as a whole or not at all.
const SECTOR: usize = 512;

/// How the disk treats what it was not asked to sync.
#[derive(Clone, Copy)]
enum Mood {
    /// Everything was on its way out, and is kept.
    Keeps,
    /// Nothing has left the memory.
    Loses,
    /// Some writes are kept whole, some lost, and some torn, in any order.
    Scatters,
}

/// A file: as the disk has it for certain, and as every process reads it.
#[derive(Default)]
struct Image {
    bytes: Vec<u8>,
    /// Not synced yet, in order.
    pending: Vec<Change>,
    read: Vec<u8>,
}

/// Which file has a name.
type Names = BTreeMap<usize, usize>;

/// A change of names that no sync of the folder has made certain.
enum Renaming {
    /// The name is this file's, or nobody's.
    Is(usize, Option<usize>),
    /// This file has another name: both are changed, or none.
    Moved { file: usize, from: usize, to: usize },
}

impl Renaming {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Is(name, Some(file)) => drop(names.insert(*name, *file)),
            Self::Is(name, None) => drop(names.remove(name)),
            Self::Moved { file, from, to } => {
                if names.get(from) == Some(file) {
                    names.remove(from);
                }
                names.insert(*to, *file);
            }
        }
    }
}

/// A folder at a moment.
#[derive(Default)]
struct State {
    files: Vec<Image>,
    /// As every process sees them.
    now: Names,
    /// As the disk certainly has them.
    certain: Names,
    uncertain: Vec<Renaming>,
}

impl State {
    fn make(&mut self, name: usize) {
        self.files.push(Image::default());
        self.rename(Renaming::Is(name, Some(self.files.len() - 1)));
    }

    fn rename(&mut self, renaming: Renaming) {
        renaming.apply(&mut self.now);
        self.uncertain.push(renaming);
    }

    fn sync_names(&mut self) {
        self.uncertain.clear();
        self.certain = self.now.clone();
    }

    /// The file of a name, if there is one.
    fn file(&mut self, name: usize) -> Option<&mut Image> {
        self.now.get(&name).and_then(|file| self.files.get_mut(*file))
    }

    fn change(&mut self, name: usize, change: Change) {
        if let Some(file) = self.file(name) {
            file.change(change);
        }
    }

    /// The names that a cut may leave: of what was not synced, as much as there was time for, or any part of it.
    fn names(&self, dice: &mut SplitMix64) -> Names {
        let mut names = self.certain.clone();
        let kept = dice.below(self.uncertain.len() + 1);
        let in_order = dice.below(2) == 0;
        for (place, renaming) in self.uncertain.iter().enumerate() {
            if if in_order { place < kept } else { dice.below(2) == 0 } {
                renaming.apply(&mut names);
            }
        }
        names
    }
}

enum Change {
    Length(usize),
    Bytes(usize, Vec<u8>),
}

impl Change {
    /// Makes it, in the sectors that are kept, counted in the file.
    fn apply(&self, file: &mut Vec<u8>, mut keeps: impl FnMut(usize) -> bool) {
        let (at, bytes) = match self {
            Self::Length(length) => return file.resize(*length, 0),
            Self::Bytes(at, bytes) => (*at, bytes),
        };
        let mut from = 0;
        while from < bytes.len() {
            let sector = (at + from) / SECTOR;
            let to = ((sector + 1) * SECTOR - at).min(bytes.len());
            if keeps(sector) {
                if file.len() < at + to {
                    file.resize(at + to, 0);
                }
                file[at + from..at + to].copy_from_slice(&bytes[from..to]);
            }
            from = to;
        }
    }
}

impl Image {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.read, |_| true);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.bytes, |_| true);
        }
    }

    /// As Linux has it: the failure is told once, and what was to be synced counts as written from then on. Processes read
    /// it, and a cut leaves nothing of it.
    fn sync_failed(&mut self) {
        self.pending.clear();
    }

    /// What is left of the changes that nobody has synced.
    fn settle(&mut self, mood: Mood, dice: &mut SplitMix64) {
        for change in std::mem::take(&mut self.pending) {
            let file = &mut self.bytes;
            match (mood, &change) {
                (Mood::Keeps, _) => change.apply(file, |_| true),
                (Mood::Loses, _) => {}
                (Mood::Scatters, Change::Length(_)) if dice.below(2) == 0 => {}
                (Mood::Scatters, Change::Length(_)) => change.apply(file, |_| true),
                (Mood::Scatters, Change::Bytes(..)) => match dice.below(3) {
                    0 => {}
                    1 => change.apply(file, |_| true),
                    _ => change.apply(file, |_| dice.below(2) == 0),
                },
            }
        }
    }
}

fn offset(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Tape {
    /// Writes into an empty folder what a power cut before the operation of that number could have left. The same seed
    /// leaves the same.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn cut(&self, before: usize, seed: u64, folder: &Path) -> io::Result<()> {
        let mut dice = SplitMix64::seeded(seed);
        let mood = match dice.below(4) {
            0 => Mood::Keeps,
            1 => Mood::Loses,
            _ => Mood::Scatters,
        };
        let mut state = self.state(before);
        for (name, file) in state.names(&mut dice) {
            let Some(image) = state.files.get_mut(file) else { continue };
            image.settle(mood, &mut dice);
            std::fs::write(folder.join(&self.names[name]), &image.bytes)?;
        }
        Ok(())
    }

    /// Writes into an empty folder what a process that was killed before the operation of that number has left:
    /// everything that was done.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn kill(&self, before: usize, folder: &Path) -> io::Result<()> {
        let state = self.state(before);
        for (name, file) in state.now {
            let Some(image) = state.files.get(file) else { continue };
            std::fs::write(folder.join(&self.names[name]), &image.read)?;
        }
        Ok(())
    }

    /// The folder at a moment.
    fn state(&self, before: usize) -> State {
        let mut state = State::default();
        for op in self.ops.iter().take(before) {
            match op {
                Op::Create(name) => state.make(*name),
                Op::Delete { file, synced } => {
                    state.rename(Renaming::Is(*file, None));
                    if *synced {
                        state.sync_names();
                    }
                }
                Op::Mark(_) => {}
                Op::Rename { from, to } => {
                    if let Some(file) = state.now.get(from).copied() {
                        state.rename(Renaming::Moved { file, from: *from, to: *to });
                    }
                }
                Op::Sync { file, folder } => {
                    if let Some(image) = state.file(*file) {
                        image.sync();
                    }
                    if *folder {
                        state.sync_names();
                    }
                }
                Op::SyncFailed(file) => {
                    if let Some(image) = state.file(*file) {
                        image.sync_failed();
                    }
                }
                Op::SyncFolder => state.sync_names(),
                Op::Truncate { file, length } => state.change(*file, Change::Length(offset(*length))),
                Op::Write { file, at, bytes } => state.change(*file, Change::Bytes(offset(*at), bytes.clone())),
            }
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use aetheris_harness::Folder;

    use super::*;

    fn write(at: u64, byte: u8, sectors: usize) -> Op {
        Op::Write { file: 0, at, bytes: vec![byte; sectors * SECTOR] }
    }

    /// What the file is after each of many cuts: one letter for each sector.
    fn found(ops: Vec<Op>, before: usize) -> Vec<String> {
        let folder = Folder::new(&format!("{}-{before}", ops.len()));
        let tape = Tape { names: vec!["a".to_owned()], ops };
        let cuts = (0..500).map(|seed| {
            let path = folder.join("a");
            let _absent = std::fs::remove_file(&path);
            tape.cut(before, seed, &folder).unwrap();
            match std::fs::read(&path) {
                Ok(bytes) => bytes.chunks(SECTOR).map(|sector| char::from(sector[0].max(b'.'))).collect(),
                Err(_) => "gone".to_owned(),
            }
        });
        let mut found: Vec<String> = cuts.collect();
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn what_was_synced_stays_and_every_sector_of_the_rest_is_at_random() {
        let named = [Op::Create(0), write(0, b'a', 2), Op::Sync { file: 0, folder: true }];
        let then = |ops: Vec<Op>| named.iter().cloned().chain(ops).collect::<Vec<Op>>();
        assert_eq!(found(then(vec![]), 3), ["aa"]);
        assert_eq!(found(then(vec![write(0, b'b', 2)]), 4), ["aa", "ab", "ba", "bb"]);
        let synced = then(vec![write(0, b'b', 2), Op::Sync { file: 0, folder: false }]);
        assert_eq!((found(synced.clone(), 5), found(synced, 4).len()), (vec!["bb".to_owned()], 4));
        // Later writes may be kept where earlier ones are lost, and what lies between them is empty.
        let scattered = then(vec![write(1024, b'c', 1), write(1536, b'd', 1)]);
        assert_eq!(found(scattered, 5), ["aa", "aa.d", "aac", "aacd"]);
        let shorter = then(vec![Op::Truncate { file: 0, length: 512 }]);
        assert_eq!(found(shorter, 4), ["a", "aa"]);
    }

    /// A later sync does not bring it back; only a second write does.
    #[test]
    fn what_a_failed_sync_has_left_is_read_by_processes_and_not_on_the_disk() {
        let ops = [Op::Create(0), write(0, b'a', 2), Op::Sync { file: 0, folder: true }, write(0, b'b', 1)];
        let failed =
            [&ops[..], &[Op::SyncFailed(0), write(512, b'c', 1), Op::Sync { file: 0, folder: false }]].concat();
        let again = [&failed[..], &[write(0, b'b', 1), Op::Sync { file: 0, folder: false }]].concat();
        assert_eq!(
            (found(failed.clone(), 5), found(failed.clone(), 7)),
            (vec!["aa".to_owned()], vec!["ac".to_owned()])
        );
        assert_eq!(found(again, 9), ["bc"]);
        let (folder, tape) = (Folder::new("failed"), Tape { names: vec!["a".to_owned()], ops: failed });
        tape.kill(7, &folder).unwrap();
        assert_eq!(std::fs::read(folder.join("a")).unwrap(), [vec![b'b'; SECTOR], vec![b'c'; SECTOR]].concat());
        // All that was to be synced, and not only the last of it.
        let two = [
            &ops[..],
            &[write(512, b'd', 1), Op::SyncFailed(0), write(1024, b'c', 1), Op::Sync { file: 0, folder: false }],
        ];
        assert_eq!(found(two.concat(), 8), ["aac"]);
    }

    #[test]
    fn a_name_is_certain_once_its_folder_was_synced() {
        let made = vec![Op::Create(0), write(0, b'a', 1), Op::Sync { file: 0, folder: false }];
        assert_eq!(found(made.clone(), 3), ["a", "gone"]);
        let named: Vec<Op> = made.into_iter().chain([Op::Sync { file: 0, folder: true }]).collect();
        assert_eq!(found(named.clone(), 4), ["a"]);
        let removed = |synced| named.iter().cloned().chain([Op::Delete { file: 0, synced }]).collect::<Vec<Op>>();
        assert_eq!(
            (found(removed(false), 5), found(removed(true), 5)),
            (vec!["a".to_owned(), "gone".to_owned()], vec!["gone".to_owned()])
        );
    }

    /// A new name is either there, or the old one is; a file in whose place another came may be back.
    #[test]
    fn a_file_that_was_renamed_has_one_of_its_names_until_its_folder_was_synced() {
        let file = |name: usize, byte: u8| {
            let sync = Op::Sync { file: name, folder: true };
            [Op::Create(name), Op::Write { file: name, at: 0, bytes: vec![byte] }, sync]
        };
        let ops = [&file(0, b'a')[..], &file(1, b'b'), &[Op::Rename { from: 0, to: 1 }, Op::SyncFolder]].concat();
        let tape = Tape { names: vec!["a".to_owned(), "b".to_owned()], ops };
        let folder = Folder::new("renamed");
        let mut expected = [vec!["ab"], vec![".a", "ab"], vec![".a"]].into_iter();
        for before in 6..=8 {
            let mut found: Vec<String> = (0..100)
                .map(|seed| {
                    for name in ["a", "b"] {
                        let _absent = std::fs::remove_file(folder.join(name));
                    }
                    tape.cut(before, seed, &folder).unwrap();
                    let read = |name| std::fs::read_to_string(folder.join(name)).unwrap_or(".".to_owned());
                    read("a") + &read("b")
                })
                .collect();
            found.sort();
            found.dedup();
            assert_eq!(
                Some(found),
                expected.next().map(|all| all.into_iter().map(str::to_owned).collect()),
                "{before}"
            );
        }
    }
}

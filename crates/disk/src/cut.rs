//! What a power cut leaves.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::tape::{Op, Tape};
use crate::watch::{OPENED, OPENING};

/// What a disk writes as a whole or not at all.
const SECTOR: usize = 512;

/// Numbers that look random, the same for the same seed (`SplitMix64`).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.roll() % bound).unwrap_or(0)
    }
}

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

/// A file as it would be read after the cut, and what is not certain of it.
#[derive(Default)]
struct Image {
    bytes: Vec<u8>,
    /// Not synced yet, in order.
    pending: Vec<Change>,
    /// Whether its name is on the disk for certain.
    named: bool,
    /// Whether it was there when the cut came.
    there: bool,
    /// Whether its name may still be on the disk though it was removed.
    haunts: bool,
}

enum Change {
    Length(usize),
    Bytes(usize, Vec<u8>),
}

impl Image {
    fn apply(&mut self, change: &Change, keeps: impl FnMut(usize) -> bool) {
        match change {
            Change::Length(length) => self.bytes.resize(*length, 0),
            Change::Bytes(at, bytes) => self.write(*at, bytes, keeps),
        }
    }

    /// Writes the sectors that are kept, counted in the file.
    fn write(&mut self, at: usize, bytes: &[u8], mut keeps: impl FnMut(usize) -> bool) {
        let mut from = 0;
        while from < bytes.len() {
            let sector = (at + from) / SECTOR;
            let to = ((sector + 1) * SECTOR - at).min(bytes.len());
            if keeps(sector) {
                if self.bytes.len() < at + to {
                    self.bytes.resize(at + to, 0);
                }
                self.bytes[at + from..at + to].copy_from_slice(&bytes[from..to]);
            }
            from = to;
        }
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            self.apply(&change, |_| true);
        }
    }

    /// What is left of the changes that nobody has synced.
    fn settle(&mut self, mood: Mood, dice: &mut Dice) {
        for change in std::mem::take(&mut self.pending) {
            match (mood, &change) {
                (Mood::Keeps, _) => self.apply(&change, |_| true),
                (Mood::Loses, _) => {}
                (Mood::Scatters, Change::Length(_)) if dice.below(2) == 0 => {}
                (Mood::Scatters, Change::Length(_)) => self.apply(&change, |_| true),
                (Mood::Scatters, Change::Bytes(..)) => match dice.below(3) {
                    0 => {}
                    1 => self.apply(&change, |_| true),
                    _ => self.apply(&change, |_| dice.below(2) == 0),
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
    /// leaves the same. `side` is the name of the file that SQLite does not know.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn cut(&self, before: usize, seed: u64, folder: &Path, side: &str) -> io::Result<()> {
        let mut dice = Dice(seed);
        let mood = match dice.below(4) {
            0 => Mood::Keeps,
            1 => Mood::Loses,
            _ => Mood::Scatters,
        };
        let (mut images, aside) = self.images(before);
        for (number, image) in &mut images {
            // A name that no sync has made certain may be lost with everything in it, or found again after its removal.
            let found =
                if image.there { image.named || dice.below(2) == 0 } else { image.haunts && dice.below(2) == 0 };
            if found {
                image.settle(mood, &mut dice);
                std::fs::write(folder.join(&self.names[*number]), &image.bytes)?;
            }
        }
        // The newest note is the one that asks most of the database; any older one may be left too.
        let place = if dice.below(2) == 0 { aside.len().checked_sub(1) } else { Some(dice.below(aside.len())) };
        if let Some(bytes) = place.and_then(|place| aside.get(place)) {
            std::fs::write(folder.join(side), bytes)?;
        }
        Ok(())
    }

    /// The files at a moment, and what the file that SQLite does not know may have in it.
    fn images(&self, before: usize) -> (BTreeMap<usize, Image>, Vec<&[u8]>) {
        let mut images: BTreeMap<usize, Image> = BTreeMap::new();
        let (mut aside, mut opening): (Vec<&[u8]>, bool) = (Vec::new(), false);
        for op in self.ops.iter().take(before) {
            match op {
                Op::Create(file) => {
                    let haunts = images.get(file).is_some_and(|image| image.haunts);
                    images.insert(*file, Image { there: true, haunts, ..Image::default() });
                }
                Op::Delete { file, synced } => {
                    let image = images.entry(*file).or_default();
                    (image.there, image.haunts) = (false, image.named && !synced);
                }
                Op::Mark(mark) => opening = *mark == OPENING || (opening && *mark != OPENED),
                Op::Side(bytes) => {
                    // What is written while a process opens the folder is synced by it before it goes on.
                    if opening {
                        aside.clear();
                    }
                    aside.push(bytes);
                }
                Op::Sync { file, folder } => {
                    images.entry(*file).or_default().sync();
                    if *folder {
                        for image in images.values_mut() {
                            (image.named, image.haunts) = (image.there, false);
                        }
                    }
                }
                Op::Truncate { file, length } => {
                    images.entry(*file).or_default().pending.push(Change::Length(offset(*length)));
                }
                Op::Write { file, at, bytes } => {
                    images.entry(*file).or_default().pending.push(Change::Bytes(offset(*at), bytes.clone()));
                }
            }
        }
        (images, aside)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("aetheris-cut-{name}-{}", std::process::id()));
        let _absent = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn write(at: u64, byte: u8, sectors: usize) -> Op {
        Op::Write { file: 0, at, bytes: vec![byte; sectors * SECTOR] }
    }

    /// What the file is after each of many cuts: one letter for each sector.
    fn found(ops: Vec<Op>, before: usize) -> Vec<String> {
        let folder = folder(&format!("{}-{before}", ops.len()));
        let tape = Tape { names: vec!["a".to_owned()], ops };
        let cuts = (0..500).map(|seed| {
            let path = folder.join("a");
            let _absent = std::fs::remove_file(&path);
            tape.cut(before, seed, &folder, "side").unwrap();
            match std::fs::read(&path) {
                Ok(bytes) => bytes.chunks(SECTOR).map(|sector| char::from(sector[0].max(b'.'))).collect(),
                Err(_) => "gone".to_owned(),
            }
        });
        let mut found: Vec<String> = cuts.collect();
        found.sort();
        found.dedup();
        std::fs::remove_dir_all(folder).unwrap();
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

    /// What a process has synced while it opened the folder is never older; what it noted since may be lost.
    #[test]
    fn a_note_is_as_old_as_the_last_that_was_synced() {
        let note = |byte: u8| Op::Side(vec![byte]);
        let ops = [note(1), Op::Mark(OPENING), note(2), note(3), Op::Mark(OPENED), note(4), note(5)];
        let folder = folder("notes");
        let mut expected = [vec![], vec![1], vec![1], vec![2], vec![3], vec![3], vec![3, 4], vec![3, 4, 5]].into_iter();
        for before in 0..=ops.len() {
            let tape = Tape { names: Vec::new(), ops: ops.to_vec() };
            let mut found: Vec<u8> = (0..100)
                .filter_map(|seed| {
                    let _absent = std::fs::remove_file(folder.join("side"));
                    tape.cut(before, seed, &folder, "side").unwrap();
                    std::fs::read(folder.join("side")).ok().map(|bytes| bytes[0])
                })
                .collect();
            found.sort_unstable();
            found.dedup();
            assert_eq!(Some(found), expected.next(), "{before}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}

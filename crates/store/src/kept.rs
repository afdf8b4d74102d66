//! What was asked for last, within so many bytes.

use std::collections::BTreeMap;

/// Values that can be had again from elsewhere, kept by key up to a bound of bytes. Those that nobody has asked for so
/// long go first. Each operation takes the logarithm of how many are kept.
#[derive(Debug)]
pub struct Kept<K, V> {
    asked: u64,
    by_key: BTreeMap<K, One<V>>,
    /// Which was asked for when.
    by_use: BTreeMap<u64, K>,
    room: usize,
    taken: usize,
}

#[derive(Debug)]
struct One<V> {
    last_asked: u64,
    takes: usize,
    value: V,
}

impl<K: Copy + Ord, V: Clone> Kept<K, V> {
    /// Nothing yet, and at most so many bytes.
    #[must_use]
    pub const fn with_room(room: usize) -> Self {
        Self { asked: 0, by_key: BTreeMap::new(), by_use: BTreeMap::new(), room, taken: 0 }
    }

    /// The value of a key, which counts as asked for now.
    pub fn get(&mut self, key: &K) -> Option<V> {
        let kept = self.by_key.get_mut(key)?;
        self.asked += 1;
        self.by_use.remove(&std::mem::replace(&mut kept.last_asked, self.asked));
        self.by_use.insert(self.asked, *key);
        Some(kept.value.clone())
    }

    /// Keeps a value that is not there and takes so many bytes, in the place of those that nobody has asked for so long.
    /// One that has no room by itself takes nobody's.
    pub fn keep(&mut self, key: K, value: V, takes: usize) {
        if takes > self.room || self.get(&key).is_some() {
            return;
        }
        self.make_room(takes);
        self.asked += 1;
        self.by_use.insert(self.asked, key);
        self.by_key.insert(key, One { last_asked: self.asked, takes, value });
        self.taken += takes;
    }

    /// Takes note that a value takes another number of bytes now, which may cost others, or itself, their place.
    pub fn weigh(&mut self, key: &K, takes: usize) {
        let Some(kept) = self.by_key.get_mut(key) else { return };
        self.taken -= std::mem::replace(&mut kept.takes, takes);
        self.taken += takes;
        if takes > self.room {
            let asked = kept.last_asked;
            self.let_go(asked);
        }
        self.make_room(0);
    }

    /// Bytes that are taken.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.taken
    }

    /// What is kept, by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &V)> {
        self.by_key.iter().map(|(key, one)| (key, &one.value))
    }

    fn make_room(&mut self, takes: usize) {
        while self.taken + takes > self.room {
            let Some((&oldest, _)) = self.by_use.first_key_value() else { return };
            self.let_go(oldest);
        }
    }

    fn let_go(&mut self, asked: u64) {
        if let Some(gone) = self.by_use.remove(&asked).and_then(|key| self.by_key.remove(&key)) {
            self.taken -= gone.takes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(kept: &Kept<u32, u32>) -> Vec<u32> {
        kept.iter().map(|(key, _)| *key).collect()
    }

    fn kept(room: usize, each: usize, of: std::ops::Range<u32>) -> Kept<u32, u32> {
        let mut kept = Kept::with_room(room);
        of.for_each(|n| kept.keep(n, n, each));
        kept
    }

    #[test]
    fn the_room_is_taken_to_the_last_byte_and_no_further() {
        let mut kept = kept(40, 10, 0..4);
        assert_eq!((keys(&kept), kept.taken()), (vec![0, 1, 2, 3], 40));
        kept.keep(4, 4, 1);
        assert_eq!((keys(&kept), kept.taken()), (vec![1, 2, 3, 4], 31));
        kept.keep(5, 5, 40);
        assert_eq!((keys(&kept), kept.taken()), (vec![5], 40));
    }

    #[test]
    fn those_asked_for_last_stay() {
        let mut kept = kept(40, 10, 0..4);
        assert_eq!(kept.get(&0), Some(0));
        assert_eq!(kept.get(&9), None);
        // What is kept once more counts as asked for, and is counted once.
        kept.keep(1, 7, 10);
        assert_eq!((kept.get(&1), kept.taken()), (Some(1), 40));
        (4..6).for_each(|n| kept.keep(n, n, 10));
        assert_eq!(keys(&kept), [0, 1, 4, 5]);
    }

    #[test]
    fn what_has_no_room_by_itself_takes_nobodys() {
        let mut kept = kept(40, 10, 0..4);
        kept.keep(4, 4, 41);
        assert_eq!(keys(&kept), [0, 1, 2, 3]);
        kept.weigh(&2, 41);
        assert_eq!((keys(&kept), kept.taken()), (vec![0, 1, 3], 30));
    }

    #[test]
    fn what_has_grown_costs_those_that_nobody_has_asked_for_so_long() {
        let mut kept = kept(40, 10, 0..4);
        kept.weigh(&3, 20);
        assert_eq!((keys(&kept), kept.taken()), (vec![1, 2, 3], 40));
        // Itself as well, where it is the one.
        kept.weigh(&1, 11);
        assert_eq!((keys(&kept), kept.taken()), (vec![2, 3], 30));
        kept.weigh(&2, 1);
        assert_eq!((keys(&kept), kept.taken()), (vec![2, 3], 21));
        kept.weigh(&9, 40);
        assert_eq!((keys(&kept), kept.taken()), (vec![2, 3], 21));
    }
}

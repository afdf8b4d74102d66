//! Words that are nearly right.

/// The first of some words that differs from another by its letters' case only, or by one slip.
pub(crate) fn nearest<'w>(mut words: impl Iterator<Item = &'w str>, word: &str) -> Option<&'w str> {
    words.find(|known| known.eq_ignore_ascii_case(word) || one_change(known, word) || one_change(word, known))
}

/// Whether `long` is `short` with one letter more, or as long with one letter or two neighbours changed.
fn one_change(long: &str, short: &str) -> bool {
    let (long, short): (Vec<char>, Vec<char>) = (long.chars().take(64).collect(), short.chars().take(64).collect());
    let front = long.iter().zip(&short).take_while(|(a, b)| a == b).count();
    let back = |from: usize, to: usize| long[from..].eq(&short[to..]);
    if long.len() == short.len() + 1 {
        return back(front + 1, front);
    }
    if long.len() != short.len() || front == long.len() {
        return false;
    }
    let swapped = front + 1 < long.len() && long[front] == short[front + 1] && long[front + 1] == short[front];
    back(front + 1, front + 1) || (swapped && back(front + 2, front + 2))
}

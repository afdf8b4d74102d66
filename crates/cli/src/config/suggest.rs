//! The nearest name to a mistyped one.

/// The name nearest to `given`, if one is near enough to be meant.
pub(crate) fn nearest<'n>(given: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let close = (given.chars().count() / 3).clamp(1, 3);
    names
        .into_iter()
        .map(|name| (distance(given, name), name))
        .filter(|(distance, name)| *distance <= close || is_beginning(given, name))
        .min()
        .map(|(_, name)| name)
}

fn is_beginning(given: &str, name: &str) -> bool {
    given.len() >= 4 && (name.starts_with(given) || given.starts_with(name))
}

/// Edits from one to the other: insert, remove, replace, or swap two neighbours.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(64).collect();
    let right: Vec<char> = right.chars().take(64).collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=right.len()).collect()];
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let mut best = (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = ["lease_ttl", "heartbeat", "slots", "poll_interval"];
        assert_eq!(nearest("lease_tl", names), Some("lease_ttl"));
        assert_eq!(nearest("haertbeat", names), Some("heartbeat"));
        assert_eq!(nearest("slot", names), Some("slots"));
        assert_eq!(nearest("poll", names), Some("poll_interval"));
        assert_eq!(nearest("banana", names), None);
        assert_eq!(nearest("", names), None);
    }

    #[test]
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("abc", "acb"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}

//! What a schema says of a value. The schemas themselves are read elsewhere: nothing here judges.

use serde::{Deserialize, Serialize};

/// One way in which a value does not fit a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// What is wrong, without the value itself.
    pub message: String,
    /// Where in the value, as a JSON pointer; empty for the whole.
    pub path: String,
}

/// Violations in one line: the first ones, and how many there are beyond.
#[must_use]
pub fn sentence(violations: &[Violation]) -> String {
    first(violations, 3)
}

/// The same with so many of them.
#[must_use]
pub fn first(violations: &[Violation], most: usize) -> String {
    let shown: Vec<String> = violations
        .iter()
        .take(most)
        .map(|violation| match violation.path.as_str() {
            "" => violation.message.clone(),
            path => format!("{path}: {}", violation.message),
        })
        .collect();
    match violations.len().saturating_sub(most) {
        0 => shown.join("; "),
        more => format!("{}; and {more} more", shown.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_the_first_ones() {
        let violation = |path: &str| Violation { message: "is wrong".to_owned(), path: path.to_owned() };
        assert_eq!(sentence(&[violation("")]), "is wrong");
        assert_eq!(sentence(&[violation("/a"), violation("/b")]), "/a: is wrong; /b: is wrong");
        let many: Vec<Violation> = ["/a", "/b", "/c", "/d", "/e"].map(violation).to_vec();
        assert_eq!(sentence(&many), "/a: is wrong; /b: is wrong; /c: is wrong; and 2 more");
    }
}

//! Places in a file.

use std::fmt;
use std::rc::Rc;

use aetheris_core::limits;

use crate::read::shortened;

/// A place in a file, as keys and positions. It is written out only where a mistake is: keys are as long as their author
/// likes, and there may be very many places behind one of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Path<'t>(Option<Rc<Link<'t>>>);

#[derive(Debug)]
struct Link<'t> {
    above: Path<'t>,
    part: Part<'t>,
}

#[derive(Debug, Clone, Copy)]
enum Part<'t> {
    Key(&'t str),
    Place(usize),
}

impl<'t> Path<'t> {
    /// The value of one key here.
    pub(crate) fn key(&self, key: &'t str) -> Self {
        self.part(Part::Key(key))
    }

    /// The item at one position here.
    pub(crate) fn place(&self, at: usize) -> Self {
        self.part(Part::Place(at))
    }

    /// How many keys and positions it has.
    pub(crate) fn depth(&self) -> usize {
        self.parts().len()
    }

    fn part(&self, part: Part<'t>) -> Self {
        Self(Some(Rc::new(Link { above: self.clone(), part })))
    }

    /// From the last one up.
    fn parts(&self) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        let mut next = self.0.as_deref();
        while let Some(link) = next {
            parts.push(link.part);
            next = link.above.0.as_deref();
        }
        parts
    }
}

/// Keys that are not plain words stand in quotes. Long ones are cut, and so is the whole.
impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for part in self.parts().into_iter().rev() {
            match part {
                Part::Place(at) => text.push_str(&format!("[{at}]")),
                Part::Key(key) => {
                    let key = shortened(key);
                    let plain = !key.is_empty()
                        && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
                    match (text.is_empty(), plain) {
                        (true, true) => text.push_str(&key),
                        (false, true) => text.extend([".", &key]),
                        (_, false) => text.push_str(&format!("[{key:?}]")),
                    }
                }
            }
        }
        f.write_str(&limits::cut(text, limits::FILE_PATH_BYTES_MAX))
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> Self {
        path.to_string()
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> Self {
        path.to_string()
    }
}

//! Which mutants do not compile: what the compiler says, and what it is about.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::weave::{Id, Region};

/// The regions of each woven file.
pub(crate) type Regions<'a> = [(&'a str, Vec<Region>)];

#[derive(Deserialize)]
struct Message {
    message: Option<Diagnostic>,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    rendered: Option<String>,
    spans: Vec<Stretch>,
    #[serde(default)]
    children: Vec<Diagnostic>,
}

#[derive(Deserialize)]
struct Stretch {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
}

/// What the errors of a build are about.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) mutants: BTreeSet<Id>,
    /// An error that is about none.
    pub(crate) unexplained: Option<String>,
}

/// Reads cargo's messages, one JSON value a line.
pub(crate) fn wrong(messages: &str, regions: &Regions<'_>) -> Wrong {
    let mut wrong = Wrong::default();
    for line in messages.lines() {
        let Ok(Message { message: Some(error) }) = serde_json::from_str(line) else { continue };
        if error.level != "error" {
            continue;
        }
        let found = blamed(&error, regions);
        if found.is_empty() && !error.spans.is_empty() {
            wrong.unexplained = error.rendered.clone().or(wrong.unexplained);
        }
        wrong.mutants.extend(found);
    }
    wrong
}

/// The mutants that an error is about: those that it points into; else all of the innermost place around it.
fn blamed(error: &Diagnostic, regions: &Regions<'_>) -> BTreeSet<Id> {
    let mut stretches: Vec<&Stretch> = error.spans.iter().collect();
    stretches.extend(error.children.iter().flat_map(|child| &child.spans));
    stretches.sort_by_key(|stretch| !stretch.is_primary);
    let of = |stretch: &Stretch| -> Vec<&Region> {
        regions.iter().filter(|(file, _)| stretch.file_name.ends_with(file)).flat_map(|(_, regions)| regions).collect()
    };
    for stretch in &stretches {
        let within = of(stretch)
            .into_iter()
            .flat_map(|region| &region.mutants)
            .filter(|(_, range)| range.start <= stretch.byte_start && stretch.byte_end <= range.end);
        let within: BTreeSet<Id> = within.map(|(id, _)| *id).collect();
        if !within.is_empty() {
            return within;
        }
    }
    for stretch in &stretches {
        let around = of(stretch)
            .into_iter()
            .filter(|region| region.whole.start <= stretch.byte_start && stretch.byte_end <= region.whole.end)
            .min_by_key(|region| region.whole.len());
        if let Some(region) = around {
            return region.mutants.iter().map(|(id, _)| *id).collect();
        }
    }
    BTreeSet::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(file: &str, start: usize, end: usize) -> String {
        format!(
            "{{\"reason\":\"compiler-message\",\"message\":{{\"level\":\"error\",\"rendered\":\"why\",\"spans\":\
             [{{\"file_name\":\"{file}\",\"byte_start\":{start},\"byte_end\":{end},\"is_primary\":true}}]}}}}"
        )
    }

    #[test]
    fn an_error_is_about_what_it_points_into_or_else_the_innermost_around_it() {
        let regions = [(
            "crates/x/src/a.rs",
            vec![
                Region { whole: 0..100, mutants: vec![(1, 0..10), (2, 10..20)] },
                Region { whole: 50..90, mutants: vec![(3, 50..60)] },
            ],
        )];
        for (start, end, mutants) in [
            (12, 14, vec![2]),
            (55, 56, vec![3]),
            (70, 71, vec![3]),
            (45, 46, vec![1, 2]),
            (8, 12, vec![1, 2]),
            (95, 120, vec![]),
        ] {
            let found = wrong(&error("crates/x/src/a.rs", start, end), &regions);
            assert_eq!(found.mutants.iter().copied().collect::<Vec<_>>(), mutants, "{start}..{end}");
            assert_eq!(found.unexplained.is_some(), mutants.is_empty(), "{start}..{end}");
        }
        assert!(wrong(&error("crates/x/src/b.rs", 12, 14), &regions).mutants.is_empty());
        assert_eq!(wrong("{\"reason\":\"build-finished\",\"success\":true}", &regions), Wrong::default());
    }
}

//! The blocks of a page, in order.

/// A fenced block: `sh NAME` and `console NAME` are typed into the terminal of that name, `FORMAT FILE` is
/// a file that is written first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) name: String,
    pub(crate) lines: Vec<String>,
}

impl Block {
    /// What is typed.
    pub(crate) fn commands(&self) -> Vec<String> {
        match self.language.as_str() {
            "console" => self.lines.iter().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect(),
            _ => self.lines.clone(),
        }
    }

    /// What is printed, as far as the page shows it.
    pub(crate) fn printed(&self) -> Vec<String> {
        let shown = |line: &&String| self.language == "console" && !line.starts_with("$ ") && !line.trim().is_empty();
        self.lines.iter().filter(shown).cloned().collect()
    }
}

/// The blocks with a name below a heading, down to the next heading of its level; of the whole page without one.
pub(crate) fn blocks(page: &str, heading: Option<&str>) -> Vec<Block> {
    let mut inside = heading.is_none();
    let mut open: Option<Block> = None;
    let mut blocks = Vec::new();
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take().filter(|block| !block.name.is_empty())),
            (Some(block), None) => block.lines.push(line.to_owned()),
            (None, Some(info)) if inside => {
                let (language, name) = info.split_once(' ').unwrap_or((info, ""));
                open = Some(Block { language: language.to_owned(), name: name.to_owned(), lines: Vec::new() });
            }
            (None, _) => {
                if let Some(heading) = heading
                    && line.starts_with("## ")
                {
                    inside = line == format!("## {heading}");
                }
            }
        }
    }
    assert!(!blocks.is_empty(), "the page has no blocks below {heading:?}");
    blocks
}

/// A line without what differs from run to run: ids, times, durations, widths of columns.
pub(crate) fn normal(line: &str) -> String {
    line.split_whitespace().map(normal_word).collect::<Vec<_>>().join(" ")
}

fn normal_word(word: &str) -> String {
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
    let id = |prefix: &str| bare.strip_prefix(prefix).is_some_and(|rest| rest.len() == 26);
    let digits = bare.chars().next().is_some_and(|c| c.is_ascii_digit());
    let unit = bare.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let time = digits && (["µs", "ms", "s", "m", "h", "d"].contains(&unit) || bare.contains(':'));
    let date = digits && bare.len() == 10 && bare.matches('-').count() == 2;
    if ["job_", "key_", "att_"].into_iter().any(id) {
        word.replace(bare, "ID")
    } else if time || date {
        word.replace(bare, "TIME")
    } else {
        word.to_owned()
    }
}

#[test]
fn what_differs_from_run_to_run_is_left_out() {
    let one = "job_01M7XZ5CJ7E4WSJSS650N53FT6  refund completed  887ms   (2026-11-21 02:33:02Z)";
    assert_eq!(normal(one), "ID refund completed TIME (TIME TIME)");
}

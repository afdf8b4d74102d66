//! What a pattern takes: to be read, compiled, and matched.
//!
//! The library reads a pattern as ECMA-262 has it and compiles it with `regex`. Whether it may is decided here, with the
//! same parts: `jsonschema-regex` translates, `regex-syntax` reads, `regex-automata` compiles.

use aetheris_core::limits;
use regex_automata::dfa::onepass;
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_syntax::ast::{self, Ast, ClassSetItem, Flag};
use regex_syntax::hir::Hir;
use regex_syntax::hir::translate::Translator;

/// States that a matcher remembers of what it has matched, in bytes, for each of its two directions.
pub(crate) const REMEMBERED_BYTES: usize = 16 * 1024;
/// The places that a matcher has tried, at most.
pub(crate) const TRIED_BYTES: usize = 256 * 1024;
/// A text that is no longer is matched without tables of states.
pub(crate) const UNTABLED_BYTES: usize = 128;
/// The most that the library takes to match a pattern with groups in one pass.
const ONE_PASS_BYTES_MAX: usize = 1024 * 1024;
/// A short pattern counts as one of so many bytes: it is read and walked all the same.
const SMALL: usize = 1024;

/// Bytes of a pattern that are read in the time of compiling an ordinary one.
const READ_BYTES: usize = 16 * 1024;
/// Named classes that are read in that time.
const NAMED_CLASSES: usize = 16;
/// What a class weighs where case is ignored: all of its characters are looked at.
const FOLDED_CLASS: usize = 10;
/// A range with fewer characters is looked at in no time.
const SHORT_RANGE: u32 = 1_000;

/// Why a pattern is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It takes more than [`limits::SCHEMA_PATTERN_BYTES_MAX`] when it is compiled.
    TooLarge,
    /// It is none.
    Wrong(String),
}

/// What a pattern takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// All forms in which it is compiled, in bytes.
    pub(crate) compiled: usize,
    /// The tables with which one of its matchers walks a text of more than [`UNTABLED_BYTES`] state by state, in bytes.
    pub(crate) tables: usize,
    /// What may be walked for each byte of a text, in bytes.
    pub(crate) walked: usize,
}

/// A pattern that was read.
pub(crate) struct Read {
    ast: Ast,
    text: String,
}

/// Escapes that are translated each by itself, by how many bytes the pattern then grows; and all is read again.
const TRANSLATED: [(&str, usize); 7] =
    [("\\c", 1), ("\\d", 8), ("\\D", 8), ("\\s", 160), ("\\S", 160), ("\\w", 16), ("\\W", 16)];

/// What reading a pattern weighs before anything else is known of it, in ordinary patterns.
pub(crate) fn weight(pattern: &str) -> usize {
    let (mut passes, mut bytes) = (1, pattern.len());
    for (escape, grown) in TRANSLATED {
        let found = pattern.matches(escape).count();
        passes += found;
        bytes += found * grown;
    }
    1 + passes.saturating_mul(bytes) / READ_BYTES
}

/// What a pattern takes that the library compares with texts instead of compiling it: `^one$`, `^(one|other)$`.
pub(crate) fn literal(pattern: &str) -> Option<Taken> {
    // Of a list each text is compared, which takes as long as so many bytes however short it is.
    const COMPARED: usize = 24;
    jsonschema_regex::analyze_pattern(pattern)?;
    let walked = (pattern.len() + COMPARED * pattern.matches('|').count()).max(SMALL);
    Some(Taken { compiled: SMALL + 2 * pattern.len(), tables: 0, walked })
}

/// Reads a pattern.
///
/// # Errors
/// It is none.
pub(crate) fn read(pattern: &str) -> Result<Read, Refused> {
    let parse = |text: &str| ast::parse::Parser::new().parse(text).map_err(|error| error.kind().to_string());
    let Ok(text) = jsonschema_regex::to_rust_regex(pattern) else {
        let why = parse(pattern).err().unwrap_or_else(|| "it has an escape that ECMA-262 has not".to_owned());
        return Err(Refused::Wrong(why));
    };
    let text = text.into_owned();
    let ast = parse(&text).map_err(Refused::Wrong)?;
    Ok(Read { ast, text })
}

impl Read {
    /// What it weighs beyond [`weight`], in ordinary patterns.
    pub(crate) fn weight(&self) -> usize {
        let classes = match ast::visit(&self.ast, Classes::default()) {
            Ok(classes) => classes,
            Err(never) => match never {},
        };
        let classes = if classes.folds { classes.large * FOLDED_CLASS } else { classes.named / NAMED_CLASSES };
        classes + self.text.len() / READ_BYTES
    }

    /// Compiles it, as the library will, and measures.
    ///
    /// # Errors
    /// It is none, or too large.
    pub(crate) fn measure(&self) -> Result<Taken, Refused> {
        let hir = Translator::new().translate(&self.text, &self.ast);
        let hir = hir.map_err(|error| Refused::Wrong(error.kind().to_string()))?;
        let forwards = compile(&hir, thompson::Config::new().which_captures(WhichCaptures::All))?;
        let backwards = compile(&hir, thompson::Config::new().which_captures(WhichCaptures::None).reverse(true))?;
        let states = forwards.states().len();
        // A matcher that walks a text state by state has two tables, in each of which a state has a place for each group's
        // two ends, and two lists of states.
        let slots = forwards.group_info().slot_len();
        let table = states.saturating_mul(size_of::<usize>().saturating_mul(slots) + 2 * size_of::<u32>());
        Ok(Taken {
            // The library may compile a part of it backwards once more.
            compiled: SMALL + forwards.memory_usage() + 2 * backwards.memory_usage() + one_pass(&hir, &forwards),
            tables: table.saturating_mul(2),
            walked: forwards.memory_usage().max(SMALL),
        })
    }
}

fn compile(hir: &Hir, config: thompson::Config) -> Result<NFA, Refused> {
    let config = config.shrink(false).nfa_size_limit(Some(limits::SCHEMA_PATTERN_BYTES_MAX));
    let built = thompson::Compiler::new().configure(config).build_from_hir(hir);
    built.map_err(|error| match error.size_limit() {
        Some(_) => Refused::TooLarge,
        None => Refused::Wrong(error.to_string()),
    })
}

/// What the library keeps to match a pattern with groups or word boundaries in one pass.
fn one_pass(hir: &Hir, forwards: &NFA) -> usize {
    let properties = hir.properties();
    if properties.explicit_captures_len() == 0 && !properties.look_set().contains_word_unicode() {
        return 0;
    }
    let config = onepass::Config::new().starts_for_each_pattern(true).size_limit(Some(ONE_PASS_BYTES_MAX));
    onepass::Builder::new().configure(config).build_from_nfa(forwards.clone()).map_or(0, |dfa| dfa.memory_usage())
}

/// The classes of a pattern, whose ranges are made when it is read.
#[derive(Debug, Default)]
struct Classes {
    /// Whether case is ignored anywhere.
    folds: bool,
    /// Those that take long where case is ignored.
    large: usize,
    /// Those that have a name, such as `\p{L}`.
    named: usize,
}

impl Classes {
    fn flags(&mut self, flags: &ast::Flags) {
        self.folds |= flags.flag_state(Flag::CaseInsensitive).is_some();
    }

    fn named(&mut self) {
        self.named += 1;
        self.large += 1;
    }
}

impl ast::Visitor for Classes {
    type Err = std::convert::Infallible;
    type Output = Self;

    fn finish(self) -> Result<Self, Self::Err> {
        Ok(self)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        match ast {
            Ast::ClassUnicode(_) | Ast::ClassPerl(_) => self.named(),
            Ast::Flags(set) => self.flags(&set.flags),
            Ast::Group(group) => {
                if let Some(flags) = group.flags() {
                    self.flags(flags);
                }
            }
            Ast::Empty(_)
            | Ast::Literal(_)
            | Ast::Dot(_)
            | Ast::Assertion(_)
            | Ast::ClassBracketed(_)
            | Ast::Repetition(_)
            | Ast::Alternation(_)
            | Ast::Concat(_) => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        match item {
            ClassSetItem::Unicode(_) | ClassSetItem::Perl(_) => self.named(),
            // Nearly everything is in it, where it is negated.
            ClassSetItem::Bracketed(class) => self.large += usize::from(class.negated),
            ClassSetItem::Range(range) => {
                let characters = u32::from(range.end.c).saturating_sub(u32::from(range.start.c));
                self.large += usize::from(characters >= SHORT_RANGE);
            }
            ClassSetItem::Empty(_) | ClassSetItem::Literal(_) | ClassSetItem::Ascii(_) | ClassSetItem::Union(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the library makes of an escape is as long as it is said to be, wherever the escape stands.
    #[test]
    fn no_escape_grows_by_more_than_it_is_said_to() {
        for (escape, grown) in TRANSLATED {
            let of = |times: usize, around: &str| {
                let escape = if escape == "\\c" { "\\cA" } else { escape };
                around.replace('E', &escape.repeat(times))
            };
            for around in ["E", "[E]", "[^E]", "(?:E)", "aEb"] {
                let lengths = [1, 3].map(|times| {
                    let before = of(times, around);
                    jsonschema_regex::to_rust_regex(&before).unwrap().len().saturating_sub(before.len())
                });
                assert!(lengths[0] <= grown && lengths[1] <= 3 * grown, "{escape} in {around}: {lengths:?}");
            }
        }
    }
}

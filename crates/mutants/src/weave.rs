//! One text of a file that holds all of its mutants: each is a branch that is taken when its number is asked for, and the
//! code as it was is the other branch.

use std::collections::BTreeMap;
use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Arm, BinOp, Block, Expr, ExprBinary, ExprStruct, ExprUnary, Signature, UnOp};

use crate::listed::{Genre, Mutant, Place};

/// A mutant's number. 0 is none.
pub(crate) type Id = u32;

/// The text that is compiled, and where in it each mutant stands.
pub(crate) struct Woven {
    pub(crate) text: String,
    pub(crate) regions: Vec<Region>,
    /// Mutants for which there is no place that can be switched.
    pub(crate) without_place: Vec<Id>,
    /// Mutants of planted bugs and of what guards them: constant false in the program, and the zoo's.
    pub(crate) planted: Vec<Id>,
}

/// A place that is changed: what errors of the compiler within it are about.
#[derive(Debug)]
pub(crate) struct Region {
    /// Bytes of the woven text.
    pub(crate) whole: Range<usize>,
    pub(crate) mutants: Vec<(Id, Range<usize>)>,
}

/// Weaves `mutants` of one file into its text.
pub(crate) fn weave(source: &str, mutants: &[(Id, &Mutant)]) -> syn::Result<Woven> {
    let mut finder = Finder {
        source,
        wanted: BTreeMap::new(),
        sites: Vec::new(),
        planted: Vec::new(),
        is_const: false,
        is_planted: false,
        arms: Vec::new(),
    };
    for (id, mutant) in mutants {
        finder.wanted.entry((mutant.genre, mutant.span.start)).or_default().push((*id, mutant.replacement.as_str()));
    }
    let file = syn::parse_file(source)?;
    finder.visit_file(&file);
    let Finder { wanted, sites, planted, .. } = finder;
    let without_place = wanted.into_values().flatten().map(|(id, _)| id).collect();
    let (text, regions) = written(source, sites);
    Ok(Woven { text, regions, without_place, planted })
}

/// A stretch of the source and what is put around it.
struct Site {
    range: Range<usize>,
    branches: Vec<Branch>,
    /// Between the branches and the stretch, and behind the stretch.
    around: (&'static str, &'static str),
}

/// Text with the mutant's part in the middle.
struct Branch {
    id: Id,
    text: String,
}

impl Branch {
    fn new(id: Id, text: String) -> Branch {
        Branch { id, text }
    }
}

struct Finder<'a> {
    source: &'a str,
    wanted: BTreeMap<(Genre, Place), Vec<(Id, &'a str)>>,
    sites: Vec<Site>,
    planted: Vec<Id>,
    /// What is computed at compile time cannot ask which mutant is chosen.
    is_const: bool,
    /// Within what runs only where a bug is planted.
    is_planted: bool,
    /// Arms of the innermost match that are left out.
    arms: Vec<Id>,
}

/// The macro that asks whether a bug is planted.
const PLANTED: &str = "planted!(";

impl<'a> Finder<'a> {
    fn take(&mut self, genre: Genre, at: Span) -> Vec<(Id, &'a str)> {
        if self.is_const {
            return Vec::new();
        }
        let start = at.start();
        let place = Place { line: start.line, column: start.column + 1 };
        let mutants = self.wanted.remove(&(genre, place)).unwrap_or_default();
        if self.is_planted {
            self.planted.extend(mutants.iter().map(|(id, _)| id));
            return Vec::new();
        }
        mutants
    }

    /// Whether this holds only where a bug is planted.
    fn asks_for_a_bug(&self, condition: &Expr) -> bool {
        match condition {
            Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) => {
                self.asks_for_a_bug(left) || self.asks_for_a_bug(right)
            }
            Expr::Macro(_) => self.of(condition).contains(PLANTED),
            _ => false,
        }
    }

    /// Whether this holds wherever no bug is planted.
    fn asks_for_no_bug(&self, condition: &Expr) -> bool {
        let Expr::Unary(ExprUnary { op: UnOp::Not(_), expr, .. }) = condition else { return false };
        matches!(**expr, Expr::Macro(_)) && self.asks_for_a_bug(expr)
    }

    fn text(&self, range: Range<usize>) -> &'a str {
        self.source.get(range).unwrap_or_default()
    }

    fn of(&self, what: &Expr) -> &'a str {
        self.text(what.span().byte_range())
    }

    /// An expression that is another one for each of these mutants.
    fn switched(&mut self, range: Range<usize>, mutants: Vec<(Id, String)>) {
        if mutants.is_empty() {
            return;
        }
        let branches = mutants
            .into_iter()
            .enumerate()
            .map(|(index, (id, text))| {
                let before = if index == 0 { "(" } else { "" };
                Branch::new(id, format!("{before}if crate::__mutant({id}) {{ ({text}) }} else "))
            })
            .collect();
        self.sites.push(Site { range, branches, around: ("{ (", ") })") });
    }

    fn body(&mut self, signature: &Signature, block: &'a Block) {
        let Some(first) = block.stmts.first() else { return };
        let was_const = std::mem::replace(&mut self.is_const, signature.constness.is_some());
        let start = first.span();
        let branches: Vec<Branch> = self
            .take(Genre::FnValue, start)
            .into_iter()
            .map(|(id, text)| Branch::new(id, format!("if crate::__mutant({id}) {{ return {text}; }} ")))
            .collect();
        if !branches.is_empty() {
            let range =
                block.brace_token.span.open().byte_range().end..block.brace_token.span.close().byte_range().start;
            self.sites.push(Site { range, branches, around: ("", "") });
        }
        visit::visit_block(self, block);
        self.is_const = was_const;
    }
}

/// Whether a condition binds names: its parts cannot be in another branch.
fn binds(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) => binds(left) || binds(right),
        _ => false,
    }
}

impl<'a> Visit<'a> for Finder<'a> {
    fn visit_item_const(&mut self, _: &'a syn::ItemConst) {}

    fn visit_item_static(&mut self, _: &'a syn::ItemStatic) {}

    fn visit_impl_item_const(&mut self, _: &'a syn::ImplItemConst) {}

    fn visit_trait_item_const(&mut self, _: &'a syn::TraitItemConst) {}

    fn visit_type(&mut self, _: &'a syn::Type) {}

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.body(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.body(&item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(&item.sig, block);
        }
    }

    fn visit_expr_binary(&mut self, expr: &'a ExprBinary) {
        let was_planted = self.is_planted;
        // `a && planted!(…)` never holds, whatever `a` is. `a || planted!(…)` is `a`, and `a && !planted!(…)` too.
        let bug = self.asks_for_a_bug(&expr.left) || self.asks_for_a_bug(&expr.right);
        self.is_planted |= bug && matches!(expr.op, BinOp::And(_));
        if !binds(&expr.left) && !binds(&expr.right) {
            let (left, right) = (self.of(&expr.left), self.of(&expr.right));
            let mutants = self.take(Genre::BinaryOperator, expr.op.span());
            let mutants = mutants.into_iter().map(|(id, op)| (id, format!("{left} {op} {right}"))).collect();
            self.switched(expr.span().byte_range(), mutants);
        }
        let inner = self.is_planted;
        // `a || !planted!(…)` always holds, whatever `a` is.
        self.is_planted |= matches!(expr.op, BinOp::Or(_)) && self.asks_for_no_bug(&expr.right);
        self.visit_expr(&expr.left);
        self.is_planted = inner;
        self.visit_expr(&expr.right);
        self.is_planted = was_planted;
    }

    fn visit_expr_unary(&mut self, expr: &'a ExprUnary) {
        let inner = self.of(&expr.expr);
        let was_planted = self.is_planted;
        self.is_planted |= self.asks_for_a_bug(&expr.expr);
        let mutants = self.take(Genre::UnaryOperator, expr.op.span());
        self.is_planted = was_planted;
        let mutants = mutants.into_iter().map(|(id, op)| (id, format!("{op}{inner}"))).collect();
        self.switched(expr.span().byte_range(), mutants);
        visit::visit_expr_unary(self, expr);
    }

    fn visit_arm(&mut self, arm: &'a Arm) {
        let left_out = self.take(Genre::MatchArm, arm.span());
        let guard = arm.guard.as_ref().map(|(_, guard)| guard);
        let place = guard.map_or_else(
            || arm.pat.span().byte_range().end..arm.pat.span().byte_range().end,
            |guard| guard.span().byte_range(),
        );
        self.arms.extend(left_out.iter().map(|(id, _)| id));
        for (id, _) in left_out {
            let (before, around) = if guard.is_some() { ("", ("(", ")")) } else { (" if ", ("", "")) };
            let and = if guard.is_some() { " && " } else { "" };
            let branches = vec![Branch::new(id, format!("{before}!crate::__mutant({id}){and}"))];
            self.sites.push(Site { range: place.clone(), branches, around });
        }
        if let Some(guard) = guard.filter(|guard| !binds(guard)) {
            let was_planted = self.is_planted;
            self.is_planted |= self.asks_for_a_bug(guard);
            let mutants = self.take(Genre::MatchArmGuard, guard.span());
            self.is_planted = was_planted;
            // What a planted bug takes the arm from: it is always taken without one.
            let same = |(_, text): &(Id, &str)| *text == "true" && self.asks_for_no_bug(guard);
            let (same, mutants): (Vec<_>, Vec<_>) = mutants.into_iter().partition(same);
            self.planted.extend(same.into_iter().map(|(id, _)| id));
            let mutants = mutants.into_iter().map(|(id, text)| (id, text.to_owned())).collect();
            self.switched(guard.span().byte_range(), mutants);
        }
        let was_planted = self.is_planted;
        self.is_planted |= guard.is_some_and(|guard| self.asks_for_a_bug(guard));
        visit::visit_arm(self, arm);
        self.is_planted = was_planted;
    }

    fn visit_expr_match(&mut self, expr: &'a syn::ExprMatch) {
        let outer = std::mem::take(&mut self.arms);
        visit::visit_expr_match(self, expr);
        let arms = std::mem::replace(&mut self.arms, outer);
        // That an arm is missing is told of what the match looks at.
        if !arms.is_empty() {
            let branches = arms.into_iter().map(|id| Branch::new(id, String::new())).collect();
            self.sites.push(Site { range: expr.expr.span().byte_range(), branches, around: ("", "") });
        }
    }

    fn visit_expr_if(&mut self, expr: &'a syn::ExprIf) {
        self.visit_expr(&expr.cond);
        let was_planted = self.is_planted;
        self.is_planted |= self.asks_for_a_bug(&expr.cond);
        self.visit_block(&expr.then_branch);
        self.is_planted = was_planted;
        if let Some((_, other)) = &expr.else_branch {
            self.visit_expr(other);
        }
    }

    fn visit_expr_struct(&mut self, expr: &'a ExprStruct) {
        if let Some(rest) = &expr.rest {
            let rest = self.of(rest);
            for field in &expr.fields {
                let syn::Member::Named(name) = &field.member else { continue };
                let mutants = self.take(Genre::StructField, field.span());
                let is_short = field.colon_token.is_none();
                let range = field.expr.span().byte_range();
                for (id, _) in mutants {
                    let label = if is_short { format!("{name}: ") } else { String::new() };
                    let text = format!("{label}if crate::__mutant({id}) {{ ({rest}).{name} }} else ");
                    let branches = vec![Branch::new(id, text)];
                    self.sites.push(Site { range: range.clone(), branches, around: ("{ ", " }") });
                }
            }
        }
        visit::visit_expr_struct(self, expr);
    }
}

/// The source with everything put around its stretches; those that hold others are opened first and closed last.
fn written(source: &str, mut sites: Vec<Site>) -> (String, Vec<Region>) {
    sites.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end)));
    let mut regions: Vec<Region> = Vec::new();
    let mut text = String::with_capacity(source.len() * 2);
    let mut open: Vec<(usize, &'static str, usize)> = Vec::new();
    let mut copied = 0;
    let mut copy = |text: &mut String, to: usize| {
        text.push_str(source.get(copied..to).unwrap_or_default());
        copied = to.max(copied);
    };
    // What begins nowhere closes all that is open.
    for site in sites.into_iter().map(Some).chain([None]) {
        let start = site.as_ref().map_or(usize::MAX, |site| site.range.start);
        while let Some((end, behind, region)) = open.pop_if(|(end, ..)| *end <= start) {
            copy(&mut text, end);
            text.push_str(behind);
            if let Some(region) = regions.get_mut(region) {
                region.whole.end = text.len();
            }
        }
        let Some(site) = site else { break };
        copy(&mut text, site.range.start);
        let start = text.len();
        let mut mutants = Vec::new();
        for branch in site.branches {
            let from = text.len();
            text.push_str(&branch.text);
            mutants.push((branch.id, from..text.len()));
        }
        text.push_str(site.around.0);
        open.push((site.range.end, site.around.1, regions.len()));
        regions.push(Region { whole: start..text.len(), mutants });
    }
    copy(&mut text, source.len());
    (text, regions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listed;

    /// What becomes of a source in which the text `at` is changed.
    fn woven(source: &str, genre: Genre, at: &str, replacement: &str) -> Option<String> {
        let start = source.find(at)?;
        let before = source.get(..start)?;
        let place = Place {
            line: before.matches('\n').count() + 1,
            column: before.chars().rev().take_while(|one| *one != '\n').count() + 1,
        };
        let mutant = Mutant {
            name: String::new(),
            file: String::new(),
            genre,
            replacement: replacement.to_owned(),
            span: listed::Span { start: place },
        };
        let woven = weave(source, &[(7, &mutant)]).ok()?;
        for region in woven.regions.iter().filter(|region| region.mutants.iter().all(|(_, branch)| !branch.is_empty()))
        {
            let text = woven.text.get(region.whole.clone())?;
            assert!(text.contains("__mutant(7)"), "{text}");
        }
        woven.without_place.is_empty().then_some(woven.text)
    }

    #[test]
    fn each_change_is_a_branch_beside_the_code_as_it_was() {
        for (source, genre, at, replacement, wanted) in [
            (
                "fn f() -> bool { a > 1 && b }",
                Genre::BinaryOperator,
                "> 1",
                ">=",
                "fn f() -> bool { (if crate::__mutant(7) { (a >= 1) } else { (a > 1) }) && b }",
            ),
            (
                "fn f() -> u8 { g() }",
                Genre::FnValue,
                "g()",
                "1",
                "fn f() -> u8 {if crate::__mutant(7) { return 1; }  g() }",
            ),
            (
                "fn f() { \"é\"; if !a {} }",
                Genre::UnaryOperator,
                "!",
                "",
                "fn f() { \"é\"; if (if crate::__mutant(7) { (a) } else { (!a) }) {} }",
            ),
            (
                "fn f() { match a { 1 => x, _ => y } }",
                Genre::MatchArm,
                "1 =>",
                "",
                "fn f() { match a { 1 if !crate::__mutant(7) => x, _ => y } }",
            ),
            (
                "fn f() { match a { 1 if b => x, _ => y } }",
                Genre::MatchArm,
                "1 if",
                "",
                "fn f() { match a { 1 if !crate::__mutant(7) && (b) => x, _ => y } }",
            ),
            (
                "fn f() { match a { 1 if b => x, _ => y } }",
                Genre::MatchArmGuard,
                "b =>",
                "true",
                "fn f() { match a { 1 if (if crate::__mutant(7) { (true) } else { (b) }) => x, _ => y } }",
            ),
            (
                "fn f() -> A { A { b, ..c } }",
                Genre::StructField,
                "b,",
                "",
                "fn f() -> A { A { b: if crate::__mutant(7) { (c).b } else { b }, ..c } }",
            ),
        ] {
            assert_eq!(woven(source, genre, at, replacement).as_deref(), Some(wanted), "{source}");
        }
    }

    #[test]
    fn what_runs_only_where_a_bug_is_planted_is_the_zoos() {
        for (source, genre, at, other) in [
            ("fn f() { if planted!(\"x\") { g(1 > 2) } }", Genre::BinaryOperator, ">", "<"),
            ("fn f() { if a && planted!(\"x\") { g() } }", Genre::BinaryOperator, "&&", "||"),
            ("fn f() { match a { 1 if planted!(\"x\") => 1 > 2, _ => y } }", Genre::BinaryOperator, "> 2", "<"),
            ("fn f() { match a { 1 if !planted!(\"x\") => b, _ => y } }", Genre::MatchArmGuard, "!planted", "true"),
            ("fn f() { if a > 2 || !planted!(\"x\") { g() } }", Genre::BinaryOperator, "> 2", "<"),
        ] {
            let Some(column) = source.find(at).map(|at| at + 1) else { panic!("{source}") };
            let mutant = Mutant {
                name: String::new(),
                file: String::new(),
                genre,
                replacement: other.to_owned(),
                span: listed::Span { start: Place { line: 1, column } },
            };
            let woven = weave(source, &[(7, &mutant)]).map(|woven| (woven.text, woven.planted));
            assert_eq!(woven.ok(), Some((source.to_owned(), vec![7])), "{source}");
        }
    }

    /// Beside a bug stands a rule that is the program's.
    #[test]
    fn what_is_joined_with_the_absence_of_a_bug_is_changed() {
        for (source, genre, at, other) in [
            ("fn f() -> bool { a && !planted!(\"x\") }", Genre::BinaryOperator, "&&", "||"),
            ("fn f() -> bool { a || planted!(\"x\") }", Genre::BinaryOperator, "||", "&&"),
            ("fn f() -> bool { a || !planted!(\"x\") }", Genre::BinaryOperator, "||", "&&"),
            ("fn f() -> bool { a || !planted!(\"x\") && 1 > 2 }", Genre::BinaryOperator, "> 2", "<"),
            ("fn f() { if !planted!(\"x\") { g(1 > 2) } }", Genre::BinaryOperator, "> 2", "<"),
            ("fn f() { match a { 1 if !planted!(\"x\") => b, _ => y } }", Genre::MatchArmGuard, "!planted", "false"),
        ] {
            let text = woven(source, genre, at, other).unwrap_or_default();
            assert!(text.contains("__mutant(7)"), "{source}: {text}");
        }
    }

    /// The compiler points there where an arm is missing.
    #[test]
    fn what_a_match_looks_at_stands_for_its_arms() {
        let source = "fn f() { match g(a) { A => b, B => match c { C => d, _ => e } } }";
        let Some(column) = source.find("A =>").map(|at| at + 1) else { panic!("{source}") };
        let mutant = Mutant {
            name: String::new(),
            file: String::new(),
            genre: Genre::MatchArm,
            replacement: String::new(),
            span: listed::Span { start: Place { line: 1, column } },
        };
        let Ok(woven) = weave(source, &[(7, &mutant)]) else { panic!("it is no program") };
        let regions: Vec<&str> =
            woven.regions.iter().filter_map(|region| woven.text.get(region.whole.clone())).collect();
        assert_eq!(regions, ["g(a)", " if !crate::__mutant(7)"], "{}", woven.text);
        assert!(woven.regions.iter().all(|region| region.mutants.iter().all(|(id, _)| *id == 7)));
    }

    #[test]
    fn what_cannot_ask_is_left_as_it_is() {
        for (source, at) in [
            ("const fn f() -> bool { 1 > 2 }", ">"),
            ("const A: bool = 1 > 2;", ">"),
            ("fn f() { if let Some(a) = b && c {} }", "&&"),
        ] {
            assert_eq!(woven(source, Genre::BinaryOperator, at.trim(), "<"), None, "{source}");
        }
    }

    #[test]
    fn the_inner_of_two_changes_is_within_the_code_of_the_outer() {
        let source = "fn f() -> bool { a == b || c }";
        let of = |at: usize, replacement: &str| Mutant {
            name: String::new(),
            file: String::new(),
            genre: Genre::BinaryOperator,
            replacement: replacement.to_owned(),
            span: listed::Span { start: Place { line: 1, column: at + 1 } },
        };
        let (outer, inner) = (of(24, "&&"), of(19, "!="));
        let woven = weave(source, &[(1, &inner), (2, &outer)]).map(|woven| woven.text).unwrap_or_default();
        assert_eq!(
            woven,
            "fn f() -> bool { (if crate::__mutant(2) { (a == b && c) } else { \
             ((if crate::__mutant(1) { (a != b) } else { (a == b) }) || c) }) }"
        );
    }
}

//! O: what units promise beside their jobs, and children.

use aetheris_core::event::JobCancelled;
use aetheris_core::id::{JobId, TenantId};
use aetheris_core::lease::Guard;
use aetheris_core::limits;
use aetheris_core::plan::OnParentEnd;
use aetheris_core::projection::Promise;

use super::Fixture;
use aetheris_store::unit::{ChildOf, Purpose, UnitOfWork};
use aetheris_store::{PromiseRow, Refusal, Scope};

fn child(number: u128) -> JobId {
    JobId::from_u128(number)
}

/// One of each, about different jobs.
fn all(author: JobId) -> Vec<(Promise, JobId)> {
    vec![
        (Promise::CreateChild { child: child(1), node: "m[3]@1".into(), seq: 5 }, child(1)),
        (Promise::TellParent { node: "n".into(), parent: child(2) }, child(2)),
        (Promise::CancelChild { child: child(1), node: "m[3]@1".into() }, child(1)),
        (Promise::CancelChildren, author),
    ]
}

fn promising(f: &Fixture, job: JobId, outbox: Vec<Promise>) -> UnitOfWork {
    let mut unit = UnitOfWork::new(f.ids.event(), job, Purpose::Record, Guard::Outside);
    unit.outbox = outbox;
    unit
}

fn delivering(f: &Fixture, job: JobId, delivers: Vec<u64>) -> UnitOfWork {
    let mut unit = UnitOfWork::new(f.ids.event(), job, Purpose::Deliver, Guard::Outside);
    unit.delivers = delivers;
    unit
}

async fn outbox(f: &Fixture) -> Vec<PromiseRow> {
    f.store().outbox(None, limits::SWEEP_ROWS_MAX).await.unwrap()
}

pub async fn o1_what_a_unit_promises_stands_in_its_order(f: Fixture) {
    let (one, two) = (f.pending().await, f.pending().await);
    let promises: Vec<Promise> = all(one).into_iter().map(|(promise, _)| promise).collect();
    f.ok(promising(&f, one, promises.clone())).await;
    f.ok(promising(&f, two, vec![Promise::CancelChildren])).await;
    let rows = outbox(&f).await;
    assert!(rows.is_sorted_by_key(|row| row.num), "{rows:?}");
    let found: Vec<(JobId, Promise)> = rows.iter().map(|row| (row.author, row.promise.clone())).collect();
    let expected = promises.into_iter().map(|promise| (one, promise)).chain([(two, Promise::CancelChildren)]);
    assert_eq!(found, expected.collect::<Vec<_>>());
    for (place, row) in rows.iter().enumerate() {
        assert_eq!(f.store().outbox(Some(row.num), 9).await.unwrap(), &rows[place + 1..]);
        assert_eq!(f.store().outbox(None, place).await.unwrap(), &rows[..place]);
    }
}

pub async fn o1_a_page_of_promises_is_bounded(f: Fixture) {
    let job = f.pending().await;
    let many = (0..=limits::SWEEP_ROWS_MAX).map(|n| Promise::TellParent { node: "n".into(), parent: child(n as u128) });
    f.ok(promising(&f, job, many.collect())).await;
    let first = f.store().outbox(None, usize::MAX).await.unwrap();
    assert_eq!(first.len(), limits::SWEEP_ROWS_MAX);
    let last = first.last().map(|row| row.num);
    assert_eq!(f.store().outbox(last, usize::MAX).await.unwrap().len(), 1);
}

pub async fn o1_a_refused_unit_promises_nothing(f: Fixture) {
    let job = f.pending().await;
    let mut unit = f.draft(job, Purpose::Cancel, Guard::Outside).await.event(JobCancelled {}).done();
    unit.expected_seq = unit.expected_seq.map(|seq| seq + 1);
    unit.outbox = vec![Promise::CancelChildren];
    assert!(matches!(f.refused(unit).await, Refusal::Sequence { .. }));
    assert_eq!(outbox(&f).await, []);
}

pub async fn o1_promises_are_found_by_author_and_target(f: Fixture) {
    let (one, two) = (f.pending().await, f.pending().await);
    for job in [one, two] {
        f.ok(promising(&f, job, all(job).into_iter().map(|(promise, _)| promise).collect())).await;
    }
    let rows = outbox(&f).await;
    for (promise, target) in all(one) {
        let found = f.store().promised(one, target).await.unwrap();
        let of = |row: &&PromiseRow| row.author == one && row.promise.target(one) == target;
        assert_eq!(found, rows.iter().filter(of).cloned().collect::<Vec<_>>());
        assert!(found.iter().any(|row| row.promise == promise));
    }
    assert_eq!(f.store().promised(one, two).await.unwrap(), []);
}

pub async fn o2_a_promise_goes_with_the_unit_that_keeps_it(f: Fixture) {
    let (author, other) = (f.pending().await, f.pending().await);
    f.ok(promising(&f, author, all(author).into_iter().map(|(promise, _)| promise).collect())).await;
    let rows = outbox(&f).await;
    // Any job's unit may keep it, with events or without.
    let draft = f.draft(other, Purpose::Deliver, Guard::Outside).await.event(JobCancelled {});
    f.ok(draft.with(|unit| unit.delivers = vec![rows[1].num]).done()).await;
    assert_eq!(outbox(&f).await, [rows[0].clone(), rows[2].clone(), rows[3].clone()]);
    f.ok(delivering(&f, author, vec![rows[0].num, rows[2].num])).await;
    assert_eq!(outbox(&f).await, [rows[3].clone()]);
    // A number is never given again.
    f.ok(delivering(&f, author, vec![rows[3].num])).await;
    f.ok(promising(&f, author, vec![Promise::CancelChildren])).await;
    assert!(outbox(&f).await[0].num > rows[3].num);
}

pub async fn o2_what_is_done_is_not_done_again(f: Fixture) {
    let (author, other) = (f.pending().await, f.pending().await);
    f.ok(promising(&f, author, vec![Promise::CancelChildren, Promise::CancelChildren])).await;
    let rows = outbox(&f).await;
    f.ok(delivering(&f, author, vec![rows[0].num])).await;
    let again = || f.draft(other, Purpose::Deliver, Guard::Outside);
    let unit = again().await.event(JobCancelled {}).with(|unit| unit.delivers = vec![rows[1].num, rows[0].num]).done();
    let before = super::snapshot::of_job(f.store(), other).await;
    assert_eq!(f.refused(unit).await, Refusal::Delivered(rows[0].num));
    assert_eq!(super::snapshot::of_job(f.store(), other).await, before);
    assert_eq!(outbox(&f).await, [rows[1].clone()], "what stands beside it stands still");
    assert_eq!(f.refused(delivering(&f, author, vec![u64::from(u32::MAX)])).await, Refusal::Delivered(u32::MAX.into()));
}

pub async fn o2_of_many_that_keep_a_promise_one_does(f: Fixture) {
    let author = f.pending().await;
    f.ok(promising(&f, author, vec![Promise::CancelChildren])).await;
    let num = outbox(&f).await[0].num;
    let mut commits = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, unit) = (f.shared(), delivering(&f, author, vec![num]));
        commits.spawn(async move { store.commit(unit).await });
    }
    let answers = commits.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
}

fn child_of(f: &Fixture, parent: JobId, on_parent_end: OnParentEnd) -> UnitOfWork {
    let mut unit = f.creation(&f.message());
    if let Some(new) = &mut unit.create {
        new.parent = Some(ChildOf { job: parent, node: "m[3]@1".into(), on_parent_end });
    }
    unit
}

pub async fn o3_no_child_is_created_for_a_parent_that_would_have_to_end_it(f: Fixture) {
    let parent = f.pending().await;
    f.ok(child_of(&f, parent, OnParentEnd::Cancel)).await;
    f.ok(f.draft(parent, Purpose::Cancel, Guard::Outside).await.event(JobCancelled {}).done()).await;
    let late = child_of(&f, parent, OnParentEnd::Cancel);
    assert_eq!(f.refused(late.clone()).await, Refusal::ParentEnded(parent));
    assert!(f.store().job(Scope::System, late.job).await.unwrap().is_none());
    f.ok(child_of(&f, parent, OnParentEnd::Leave)).await;
    let nobody = child(404);
    assert_eq!(f.refused(child_of(&f, nobody, OnParentEnd::Cancel)).await, Refusal::ParentEnded(nobody));
    assert_eq!(f.refused(child_of(&f, nobody, OnParentEnd::Leave)).await, Refusal::UnknownJob);
}

pub async fn o4_children_are_listed_in_the_order_of_their_creation(f: Fixture) {
    let (parent, other) = (f.pending().await, f.pending().await);
    let units: Vec<UnitOfWork> =
        [OnParentEnd::Cancel, OnParentEnd::Leave, OnParentEnd::Cancel].map(|end| child_of(&f, parent, end)).to_vec();
    f.ok(child_of(&f, other, OnParentEnd::Cancel)).await;
    // Whatever the ids say: they are made before.
    for unit in units.iter().rev() {
        f.ok(unit.clone()).await;
    }
    let page = f.store().children(Scope::System, parent, None, 9).await.unwrap();
    let ids: Vec<JobId> = units.iter().rev().map(|unit| unit.job).collect();
    assert_eq!((page.children.iter().map(|child| child.row.id).collect::<Vec<_>>(), page.next), (ids.clone(), None));
    assert!(page.children.iter().all(|child| child.node.text() == "m[3]@1"));
    let ends: Vec<OnParentEnd> = page.children.iter().map(|child| child.on_parent_end).collect();
    assert_eq!(ends, [OnParentEnd::Cancel, OnParentEnd::Leave, OnParentEnd::Cancel]);
    let first = f.store().children(Scope::System, parent, None, 2).await.unwrap();
    assert_eq!((first.children.len(), first.next), (2, Some(ids[1])));
    let second = f.store().children(Scope::System, parent, first.next, 2).await.unwrap();
    assert_eq!((second.children, second.next), (page.children[2..].to_vec(), None));
    assert_eq!(f.store().children(Scope::System, child(404), None, 2).await.unwrap().children, []);
}

pub async fn o4_children_of_another_tenant_are_not_there(f: Fixture) {
    let parent = f.pending().await;
    f.ok(child_of(&f, parent, OnParentEnd::Cancel)).await;
    let of = |tenant: &str| f.store().children(Scope::Tenant(TenantId::from(tenant)), parent, None, 9);
    assert_eq!(of(TenantId::DEFAULT).await.unwrap().children.len(), 1);
    assert_eq!(of("other").await.unwrap().children, []);
}

pub async fn o5_a_unit_that_only_keeps_promises_is_found_by_them(f: Fixture) {
    let author = f.pending().await;
    f.ok(promising(&f, author, vec![Promise::CancelChildren])).await;
    let unit = delivering(&f, author, vec![outbox(&f).await[0].num]);
    assert_eq!(f.store().resolve_unknown(&unit).await.unwrap(), None);
    f.ok(unit.clone()).await;
    assert!(f.store().resolve_unknown(&unit).await.unwrap().is_some());
}

pub async fn o6_a_promise_is_hinted(f: Fixture) {
    let author = f.pending().await;
    f.ok(promising(&f, author, vec![Promise::CancelChildren])).await;
    f.store().bus().outbox_changed().await;
}

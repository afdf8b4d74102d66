//! A check of a whole store by as many hands as there are: each takes the next jobs in the order of their arrival,
//! reads all that the store has about them, and counts for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use aetheris_core::id::{IdempotencyKey, JobId};
use aetheris_core::limits;
use aetheris_core::time::Timestamp;
use aetheris_store::{DoubtFilter, ErrorKind, Scope, Store, StoreError, Unreadable, rules};

use crate::amiss::words;
use crate::history::ClientHistory;
use crate::invariant::Invariant;
use crate::report::{Report, Tally};
use crate::witness::{WitnessLine, names_permits};
use crate::{Dossier, acknowledged, check_job, outcomes, placing, tools};

/// What is known beside the store, and how far the check has come.
#[derive(Debug)]
pub struct Survey {
    by_job: BTreeMap<JobId, Vec<WitnessLine>>,
    course: Course,
    history: ClientHistory,
    /// Whether the log names permits.
    named: bool,
    witness: Vec<WitnessLine>,
}

/// Who looks at which arrivals.
#[derive(Debug)]
struct Course {
    done: AtomicU64,
    /// The first arrival that nobody has taken.
    next: AtomicU64,
    /// The first that is not there; unknown before the first look.
    of: AtomicU64,
}

impl Course {
    fn new() -> Self {
        Self { done: AtomicU64::new(0), next: AtomicU64::new(0), of: AtomicU64::new(u64::MAX) }
    }

    /// The next arrivals that nobody has taken.
    fn take(&self) -> Range<u64> {
        let step = u64::try_from(limits::DOSSIERS_MAX).unwrap_or(u64::MAX);
        let from = self.next.fetch_add(step, Ordering::Relaxed);
        from..from.saturating_add(step)
    }

    /// What a hand looks at after an answer to these arrivals; nothing where it was the last.
    fn behind(&self, asked: &Range<u64>, next: u64, end: u64) -> Option<Range<u64>> {
        self.of.store(end, Ordering::Relaxed);
        if end <= asked.end && next >= end {
            return None;
        }
        self.done.fetch_add(next.min(asked.end) - asked.start, Ordering::Relaxed);
        if next < asked.end {
            return Some(next..asked.end);
        }
        // No job stands from there up to the next one: nobody walks it. What others have not taken of it is looked at
        // at once, for what is left of jobs that have gone.
        let from = self.next.fetch_max(next, Ordering::Relaxed).max(asked.end);
        Some(if from < next { from..next } else { self.take() })
    }
}

/// What one hand has found.
#[derive(Debug, Default)]
pub struct Part {
    doubts: BTreeSet<IdempotencyKey>,
    events: u64,
    jobs: u64,
    seen: BTreeSet<JobId>,
    tally: Tally,
}

impl Survey {
    /// With what tools have logged and clients were told; both may be empty.
    #[must_use]
    pub fn new(witness: &[WitnessLine], history: &ClientHistory) -> Self {
        let mut by_job: BTreeMap<JobId, Vec<WitnessLine>> = BTreeMap::new();
        for line in witness {
            by_job.entry(line.job).or_default().push(line.clone());
        }
        let (named, witness) = (names_permits(witness), witness.to_vec());
        Self { by_job, course: Course::new(), history: history.clone(), named, witness }
    }

    /// How many arrivals are looked at, of how many; unknown before the first look.
    #[must_use]
    pub fn progress(&self) -> (u64, Option<u64>) {
        let of = self.course.of.load(Ordering::Relaxed);
        (self.course.done.load(Ordering::Relaxed), (of != u64::MAX).then_some(of))
    }

    /// Takes jobs until there are none left. Several may do it at once.
    ///
    /// # Errors
    /// The store cannot be read. What is read and contradicts an invariant is counted instead.
    pub async fn take_part(&self, store: &dyn Store) -> Result<Part, StoreError> {
        let mut part = Part::default();
        let generation = store.status().await?.generation;
        let mut numbers = self.course.take();
        loop {
            let found = store.dossiers(numbers.start, numbers.end).await?;
            for what in &found.amiss {
                part.tally.case(Invariant::B7, false, || words(what));
            }
            for job in &found.jobs {
                self.examine(job, generation, found.now, &mut part);
            }
            let Some(further) = self.course.behind(&numbers, found.next, found.end) else {
                return Ok(part);
            };
            numbers = further;
        }
    }

    /// One job, as it was at a moment.
    fn examine(&self, job: &Result<Dossier, Unreadable>, generation: u32, now: Timestamp, part: &mut Part) {
        part.jobs += 1;
        let facts = match job {
            Ok(facts) => {
                placing::check(facts.row.id, &facts.placing, now, &mut part.tally);
                facts
            }
            Err(unreadable) => {
                placing::check(unreadable.job, &unreadable.placing, now, &mut part.tally);
                // Whatever is wrong with one job must not hide it, nor all others.
                part.tally.case(Invariant::B4, false, || format!("{}: {}", unreadable.job, unreadable.error));
                part.seen.insert(unreadable.job);
                return;
            }
        };
        part.events += u64::try_from(facts.events.len()).unwrap_or(0);
        let lines = self.by_job.get(&facts.row.id).map_or(&[][..], Vec::as_slice);
        check_job(facts, generation, (lines, self.named), &self.history, &mut part.tally);
        // Only who knows more than the store asks later which jobs there were.
        if !self.witness.is_empty() || !self.history.is_empty() {
            part.seen.insert(facts.row.id);
        }
        part.doubts.extend(facts.ledger.iter().filter(|row| rules::in_doubt(row)).map(|row| row.key));
    }

    /// Puts together what all have found.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn conclude(&self, store: &dyn Store, parts: Vec<Part>) -> Result<Report, StoreError> {
        let mut all = Part::default();
        for part in parts {
            all.doubts.extend(part.doubts);
            all.seen.extend(part.seen);
            all.tally.add(part.tally);
            (all.events, all.jobs) = (all.events + part.events, all.jobs + part.jobs);
        }
        acknowledged::exist(&all.seen, &self.history, &mut all.tally);
        tools::known_jobs(&all.seen, &self.witness, &mut all.tally);
        if self.history.quiet {
            outcomes::listed(&all.doubts, &listed(store).await?, &mut all.tally);
        }
        Ok(all.tally.into_report(all.jobs, all.events))
    }
}

/// All calls that the list of doubts has, page by page.
///
/// # Errors
/// The store cannot be read.
pub async fn listed(store: &dyn Store) -> Result<BTreeSet<IdempotencyKey>, StoreError> {
    let mut filter = DoubtFilter { limit: limits::PAGE_JOBS_MAX, scope: Scope::System, ..DoubtFilter::default() };
    let mut listed = BTreeSet::new();
    loop {
        let page = store.doubts(filter.clone()).await?;
        listed.extend(page.doubts.iter().map(|doubt| doubt.call.key));
        if page.next.is_none() {
            return Ok(listed);
        }
        filter.after = page.next;
    }
}

/// Whether an error says that what the store holds is damaged, and not only that it cannot be asked now.
#[must_use]
pub fn is_damage(error: &StoreError) -> bool {
    error.kind == ErrorKind::Corrupt
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aetheris_core::hash::Hash;
    use aetheris_core::plan::EffectClass;
    use aetheris_core::time::Span;
    use aetheris_store::memory::MemoryStore;
    use aetheris_store::system::Clock;
    use aetheris_store::{Boxed, Dossiers, Placing, Purpose};
    use aetheris_store_conformance::{Fixture, Harness, Opened};

    use super::*;
    use crate::history::Submission;
    use crate::invariant::Invariant::{B1, B3, B4, B7, C2, C5};
    use crate::witness::WitnessKind;

    /// No claim is to find it.
    const ENDED: Placing =
        Placing { behind: false, delayed_until: None, not_before: None, pending: false, ready: false };

    struct Memory;

    impl Harness for Memory {
        fn open(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Opened> {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock));
            Box::pin(std::future::ready(Opened { keep: Box::new(()), store }))
        }
    }

    fn quiet() -> ClientHistory {
        ClientHistory { quiet: true, ..ClientHistory::default() }
    }

    /// A job whose call is in doubt.
    async fn doubted(fixture: &Fixture) -> JobId {
        let run = fixture.running().await;
        fixture.ok(fixture.of(run, Purpose::Permit).await.call("c", EffectClass::AtMostOnce).done()).await;
        fixture.ok(fixture.of(run, Purpose::Doubt).await.doubt("c").done()).await;
        run.job
    }

    fn cases(report: &Report, id: Invariant) -> (u64, u64) {
        report.line(id).map_or((0, 0), |line| (line.examined, line.violated))
    }

    /// More than two readings, and as many as fill them.
    #[tokio::test]
    async fn every_job_is_examined_once_by_however_many_hands() {
        let fixture = Fixture::open(&Memory).await;
        let each = limits::DOSSIERS_MAX;
        let mut there = 0;
        for jobs in [0, 1, each - 1, each, each + 1, 2 * each, 2 * each + 3] {
            while there < jobs {
                fixture.pending().await;
                there += 1;
            }
            let jobs = u64::try_from(jobs).unwrap();
            let survey = Survey::new(&[], &ClientHistory::default());
            assert_eq!(survey.progress(), (0, None));
            let parts = [survey.take_part(fixture.store()).await, survey.take_part(fixture.store()).await];
            let (done, of) = survey.progress();
            assert!(of.is_some_and(|of| of >= jobs) && done <= jobs, "{done} of {of:?}");
            let [all, none] = parts.map(Result::unwrap);
            assert!(all.seen.is_empty(), "nobody asks which jobs there were");
            // Whoever comes last has nothing left.
            let report = survey.conclude(fixture.store(), vec![all, none]).await.unwrap();
            assert_eq!((report.jobs, report.events, cases(&report, B1)), (jobs, 2 * jobs, (jobs, 0)));
        }
    }

    /// Each number falls to one hand, in a gap too, and a gap costs each hand no more than one look.
    #[test]
    fn a_gap_between_the_numbers_of_jobs_is_passed_at_once_by_however_many_hands() {
        for far in [1 << 40, (1 << 63) - 1] {
            let jobs: BTreeSet<u64> = (0..150).chain([300, far - 70, far]).collect();
            let end = far + 1;
            for hands in 1..5 {
                let course = Course::new();
                let mut asked: Vec<Option<Range<u64>>> = (0..hands).map(|_| Some(course.take())).collect();
                let mut looked = Vec::new();
                while asked.iter().any(Option::is_some) {
                    for hand in &mut asked {
                        let Some(of) = hand.take() else { continue };
                        // One reading may end early.
                        let large = of.start + 40;
                        let next = if large < of.end && jobs.range(large..of.end).next().is_some() {
                            large
                        } else {
                            jobs.range(of.end..).next().copied().unwrap_or(of.end)
                        };
                        *hand = course.behind(&of, next, end);
                        looked.push(of.start..next.min(of.end));
                        assert!(looked.len() < 40, "{looked:?}");
                    }
                }
                looked.sort_by_key(|of| of.start);
                assert!(looked.iter().zip(&looked[1..]).all(|(one, two)| one.end == two.start), "{looked:?}");
                assert!(looked[0].start == 0 && looked.last().is_some_and(|of| of.end >= end), "{looked:?}");
            }
        }
    }

    /// Each hand counts for itself.
    #[tokio::test]
    async fn what_several_hands_have_found_is_put_together() {
        let fixture = Fixture::open(&Memory).await;
        let [one, two] = [doubted(&fixture).await, doubted(&fixture).await];
        let submissions = [one, two].map(|job| Submission { client_key: None, job }).to_vec();
        let survey = Survey::new(&[], &ClientHistory { submissions, ..quiet() });
        let generation = fixture.store().status().await.unwrap().generation;
        let Dossiers { jobs: facts, now, .. } = fixture.store().dossiers(0, 64).await.unwrap();
        let part = |job: &Result<Dossier, Unreadable>| {
            let mut part = Part::default();
            survey.examine(job, generation, now, &mut part);
            part
        };
        let whole = survey.conclude(fixture.store(), facts.iter().map(part).collect()).await.unwrap();
        assert!(whole.is_clean(), "{whole}");
        let events = facts.iter().map(|job| job.as_ref().unwrap().events.len()).sum::<usize>();
        assert_eq!((whole.jobs, whole.events), (2, u64::try_from(events).unwrap()));
        assert_eq!((cases(&whole, B1), cases(&whole, B3)), ((2, 0), (2, 0)));
        // What nobody has examined is missed.
        let half = survey.conclude(fixture.store(), vec![part(&facts[1])]).await.unwrap();
        assert_eq!((cases(&half, B3), cases(&half, C5).1), ((2, 1), 1));
    }

    #[tokio::test]
    async fn a_job_that_cannot_be_read_is_a_violation_and_is_there() {
        let fixture = Fixture::open(&Memory).await;
        let job = JobId::from_u128(9);
        let submissions = vec![Submission { client_key: None, job }];
        let survey = Survey::new(&[], &ClientHistory { submissions, ..quiet() });
        let mut part = Part::default();
        let error = StoreError::new(ErrorKind::Corrupt, "check", std::io::Error::other("half a row"));
        assert!(is_damage(&error));
        survey.examine(&Err(Unreadable { error, job, placing: ENDED }), 1, Timestamp::default(), &mut part);
        let report = survey.conclude(fixture.store(), vec![part]).await.unwrap();
        assert_eq!((report.jobs, report.violated(), cases(&report, B3)), (1, vec![B4], (1, 0)));
        let told = &report.line(B4).unwrap().violations[0];
        assert!(told.starts_with(&format!("{job}: ")) && told.contains("half a row"), "{told}");
    }

    /// Whether the rest of it can be read or not.
    #[tokio::test]
    async fn a_job_that_claims_do_not_find_at_its_time_is_found() {
        let fixture = Fixture::open(&Memory).await;
        fixture.pending().await;
        let survey = Survey::new(&[], &ClientHistory::default());
        let Dossiers { mut jobs, now, .. } = fixture.store().dossiers(0, 64).await.unwrap();
        let Ok(mut facts) = jobs.remove(0) else { panic!("it can be read") };
        let judged = |job: Result<Dossier, Unreadable>| {
            let mut part = Part::default();
            survey.examine(&job, 1, now, &mut part);
            let report = part.tally.into_report(1, 0);
            report.line(B7).map_or(vec![], |line| line.violations.clone())
        };
        assert_eq!(judged(Ok(facts.clone())), Vec::<String>::new());
        let (job, placing) = (facts.row.id, Placing { ready: false, ..facts.placing });
        facts.placing = placing;
        let missed = [format!("{job}: it is pending, and no claim finds it")];
        assert_eq!(judged(Ok(facts)), missed);
        let error = StoreError::new(ErrorKind::Corrupt, "check", std::io::Error::other("half a row"));
        assert_eq!(judged(Err(Unreadable { error, job, placing })), missed);
    }

    #[tokio::test]
    async fn a_body_of_a_job_that_is_not_there_is_found_and_one_of_a_job_that_is_there_is_its_own() {
        let fixture = Fixture::open(&Memory).await;
        let job = fixture.pending().await;
        let line = |job| WitnessLine {
            kind: WitnessKind::BodyStart,
            acts: true,
            at: aetheris_core::time::Timestamp::default(),
            attempt: 1,
            fence: aetheris_core::lease::Fence { generation: 1, epoch: 1 },
            input_hash: Hash::ZERO,
            job,
            key: IdempotencyKey::from_u128(1),
            node: "n".into(),
            permit: None,
            result_hash: None,
            tool: "t".to_owned(),
        };
        for (job, words) in [(job, "without a permission before it"), (JobId::from_u128(9), "which is not there")] {
            let history = ClientHistory::default();
            let report = crate::check_store(fixture.store(), &[line(job)], &history).await.unwrap();
            let told = &report.line(C2).unwrap().violations;
            assert!(told.len() == 1 && told[0].contains(words), "{told:?}");
        }
    }

    /// The list comes in pages.
    #[tokio::test]
    async fn however_many_calls_are_in_doubt_the_list_is_compared_with_all_of_them() {
        let fixture = Fixture::open(&Memory).await;
        for _ in 0..=limits::PAGE_JOBS_MAX {
            doubted(&fixture).await;
            fixture.advance(Span::from_micros(1));
        }
        let report = crate::check_store(fixture.store(), &[], &quiet()).await.unwrap();
        assert_eq!(cases(&report, C5).1, 0, "{report}");
        // While others write, list and jobs are of different moments.
        let survey = Survey::new(&[], &ClientHistory::default());
        let report = survey.conclude(fixture.store(), Vec::new()).await.unwrap();
        assert_eq!(cases(&report, C5), (0, 0));
    }
}

//! Blows that are planned instead of drawn: each place at which a run and the world meet has a number, and a plan says which
//! of them are struck, and by what. The same world with the same plan does the same for ever.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aetheris_core::plan::EffectClass;
use aetheris_core::time::Span;
use aetheris_store::faulty::{Fault, Op};
use aetheris_testing::gate::{Call, Crossing};
use tokio::sync::Notify;

/// A place at which something may strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    /// A write to the store is about to leave its process.
    BeforeWrite,
    /// The store is about to execute a write.
    Write,
    /// The answer to a write is about to be seen.
    AfterWrite,
    /// The store is about to say what became of a write.
    Read,
    /// A call of a tool, or a question to a model, is about to leave its process.
    BeforeCall,
    /// A call is on its way to a tool; whether it may be made once only.
    Call {
        /// Whether it may be made once only.
        once: bool,
    },
    /// A question is on its way to a model.
    Question,
    /// An answer from outside is about to be seen.
    AfterCall,
}

/// What strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blow {
    /// The process dies.
    Death,
    /// The process stands still until its lease has ended.
    Standstill,
    /// Somebody cancels the job.
    Cancel,
    /// Somebody pauses the job, and resumes it later.
    Pause,
    /// The store executes it and its answer is lost.
    AnswerLost,
    /// The store refuses it, and says so.
    Refused,
    /// The store executes it when its author has given up.
    Late,
    /// The store never executes it, and nobody is told.
    Lost,
    /// The connection is refused.
    NotSent,
    /// It is lost on the way to a tool.
    LostGoing,
    /// The tool acts, and the connection breaks.
    Broken,
    /// The tool acts, and its answer never comes.
    Silent,
    /// It stands in the tool's queue until its caller has given up.
    Queued,
    /// The provider has no capacity left for the question.
    HeldBack,
    /// The model is busy.
    Busy,
}

impl Site {
    /// Every site, for a report of what a search has met.
    pub const ALL: [Self; 9] = [
        Self::BeforeWrite,
        Self::Write,
        Self::AfterWrite,
        Self::Read,
        Self::BeforeCall,
        Self::Call { once: false },
        Self::Call { once: true },
        Self::Question,
        Self::AfterCall,
    ];

    /// What may strike here.
    #[must_use]
    pub const fn blows(self) -> &'static [Blow] {
        match self {
            // Frozen between its last check and its send, for longer than every bound, is what no runtime can promise
            // anything about.
            Self::BeforeCall => &[Blow::Death, Blow::Cancel, Blow::Pause],
            Self::BeforeWrite | Self::AfterCall => &[Blow::Death, Blow::Standstill, Blow::Cancel, Blow::Pause],
            Self::AfterWrite => &[Blow::Death, Blow::Standstill],
            Self::Write => &[Blow::AnswerLost, Blow::Refused, Blow::Late, Blow::Lost],
            Self::Read => &[Blow::Refused],
            Self::Call { once: false } => &[Blow::NotSent, Blow::LostGoing, Blow::Broken, Blow::Silent],
            Self::Call { once: true } => &[Blow::NotSent, Blow::LostGoing, Blow::Broken, Blow::Silent, Blow::Queued],
            Self::Question => &[Blow::HeldBack, Blow::Busy],
        }
    }

    /// Whether it is met only behind a blow: nobody asks what became of a write whose answer was seen.
    #[must_use]
    pub const fn follows_another(self) -> bool {
        matches!(self, Self::Read)
    }

    /// The site of a crossing, if it is one: what a process asks beside its jobs' writes is struck by nothing here.
    #[must_use]
    pub fn of(crossing: &Crossing) -> Option<Self> {
        match crossing {
            Crossing::ToStore(Call::Commit(_) | Call::Claim | Call::ResolveUnknown) => Some(Self::BeforeWrite),
            Crossing::FromStore(Call::Commit(_) | Call::Claim) => Some(Self::AfterWrite),
            Crossing::ToTool(..) | Crossing::ToModel => Some(Self::BeforeCall),
            Crossing::FromTool(..) | Crossing::FromModel => Some(Self::AfterCall),
            Crossing::ToStore(Call::Agent | Call::Heartbeat | Call::Read(_))
            | Crossing::FromStore(Call::Agent | Call::Heartbeat | Call::Read(_) | Call::ResolveUnknown) => None,
        }
    }

    /// The site of an operation of the store, if it is one.
    #[must_use]
    pub const fn of_operation(op: Op) -> Option<Self> {
        match op {
            Op::Commit(_) | Op::Claim => Some(Self::Write),
            Op::ResolveUnknown => Some(Self::Read),
            Op::Agent | Op::Heartbeat | Op::Read => None,
        }
    }

    /// The site of a call of a tool of that class.
    #[must_use]
    pub const fn of_call(class: EffectClass) -> Self {
        Self::Call { once: matches!(class, EffectClass::AtMostOnce) }
    }
}

/// How late a write lands that its author has given up.
const LATE: Span = Span::from_millis(700);

impl Blow {
    /// The fault of the store that it is, if it is one.
    #[must_use]
    pub const fn fault(self) -> Option<Fault> {
        match self {
            Self::AnswerLost => Some(Fault::After),
            Self::Refused => Some(Fault::Before),
            Self::Late => Some(Fault::Late(LATE)),
            Self::Lost => Some(Fault::Lost),
            Self::Death
            | Self::Standstill
            | Self::Cancel
            | Self::Pause
            | Self::NotSent
            | Self::LostGoing
            | Self::Broken
            | Self::Silent
            | Self::Queued
            | Self::HeldBack
            | Self::Busy => None,
        }
    }
}

/// Which sites are struck, by their numbers, and by what.
pub type Plan = BTreeMap<usize, Blow>;

#[derive(Debug, Default)]
struct Book {
    /// Blows that were dealt.
    dealt: Vec<(Site, Blow)>,
    /// Sites that were met while it was armed.
    met: Vec<Site>,
    over: bool,
    armed: bool,
}

#[derive(Debug)]
struct Inner {
    book: Mutex<Book>,
    cancel: Notify,
    pause: Notify,
    plan: Plan,
}

/// The planned blows of a run; without a plan it knows of no site. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Strikes(Option<Arc<Inner>>);

impl Strikes {
    /// Blows as planned. An empty plan only counts sites.
    #[must_use]
    pub fn planned(plan: Plan) -> Self {
        let (book, cancel, pause) = (Mutex::default(), Notify::new(), Notify::new());
        Self(Some(Arc::new(Inner { book, cancel, pause, plan })))
    }

    /// Whether blows are planned here, and not drawn.
    #[must_use]
    pub fn are_planned(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the plan has this blow.
    #[must_use]
    pub fn plan(&self, blow: Blow) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.plan.values().any(|planned| *planned == blow))
    }

    /// From here on sites count.
    pub fn arm(&self) {
        if let Some(inner) = &self.0 {
            inner.book().armed = true;
        }
    }

    /// From here on none does; whoever waits for a blow waits for nothing more.
    pub fn end(&self) {
        let Some(inner) = &self.0 else { return };
        let mut book = inner.book();
        (book.armed, book.over) = (false, true);
        drop(book);
        inner.cancel.notify_one();
        inner.pause.notify_one();
    }

    /// A site is met. What strikes there, unless it is somebody who acts beside it.
    #[must_use]
    pub fn strike(&self, site: Site) -> Option<Blow> {
        let inner = self.0.as_ref()?;
        let mut book = inner.book();
        if !book.armed {
            return None;
        }
        let number = book.met.len();
        book.met.push(site);
        let blow = inner.plan.get(&number).copied().filter(|blow| site.blows().contains(blow))?;
        book.dealt.push((site, blow));
        drop(book);
        match blow {
            Blow::Cancel => inner.cancel.notify_one(),
            Blow::Pause => inner.pause.notify_one(),
            _ => return Some(blow),
        }
        None
    }

    /// Waits until somebody is to cancel the job. Whether that comes.
    pub async fn cancel_comes(&self) -> bool {
        let Some(inner) = &self.0 else { return false };
        inner.cancel.notified().await;
        !inner.book().over
    }

    /// Waits until somebody is to pause the job. Whether that comes.
    pub async fn pause_comes(&self) -> bool {
        let Some(inner) = &self.0 else { return false };
        inner.pause.notified().await;
        !inner.book().over
    }

    /// The blows that were dealt, and where.
    #[must_use]
    pub fn dealt(&self) -> Vec<(Site, Blow)> {
        self.0.as_ref().map_or_else(Vec::new, |inner| inner.book().dealt.clone())
    }

    /// The sites that were met, in their order.
    #[must_use]
    pub fn met(&self) -> Vec<Site> {
        self.0.as_ref().map_or_else(Default::default, |inner| inner.book().met.clone())
    }
}

impl Inner {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

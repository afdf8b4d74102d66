//! Stores that wrap another: their questions, each asked in the same way.

/// Every question of [`Store`](crate::Store) but `glance`, `history` and `health`, asked through the wrapper's own method:
/// `fn $read(&self, name, ask)`, where `ask` puts the question to the store inside. To stand in an
/// `impl Store for` block.
#[macro_export]
macro_rules! questions_through {
    ($read:ident) => {
        $crate::questions_through! { $read:
            agent(tenant: ::aetheris_core::id::TenantId, name: ::aetheris_core::id::AgentName) -> Option<$crate::AgentRow>;
            agents(tenant: ::aetheris_core::id::TenantId, after: Option<::aetheris_core::id::AgentName>, limit: usize) -> $crate::AgentPage;
            ahead_in_session(scope: $crate::Scope, job: ::aetheris_core::id::JobId) -> Option<$crate::JobRow>;
            children(scope: $crate::Scope, job: ::aetheris_core::id::JobId, after: Option<::aetheris_core::id::JobId>, limit: usize)
                -> $crate::ChildPage;
            client_key(tenant: ::aetheris_core::id::TenantId, agent: ::aetheris_core::id::AgentName, key: String)
                -> Option<(::aetheris_core::id::JobId, ::aetheris_core::hash::Hash)>;
            dossiers(from: u64, to: u64) -> $crate::Dossiers;
            doubts(filter: $crate::DoubtFilter) -> $crate::DoubtPage;
            due_timers(after: Option<$crate::TimerRow>, limit: usize) -> $crate::DueTimers;
            effect(scope: $crate::Scope, job: ::aetheris_core::id::JobId, key: ::aetheris_core::id::IdempotencyKey)
                -> Option<$crate::EffectRow>;
            events(scope: $crate::Scope, job: ::aetheris_core::id::JobId, after: u64, limit: usize) -> Vec<$crate::EventRow>;
            evidence(scope: $crate::Scope, job: ::aetheris_core::id::JobId) -> Vec<$crate::Evidence>;
            expired(after: Option<$crate::ExpiredLease>, limit: usize) -> Vec<$crate::ExpiredLease>;
            history_behind(scope: $crate::Scope, job: ::aetheris_core::id::JobId, seq: u64, since: ::aetheris_core::time::Timestamp)
                -> Option<$crate::History>;
            held_by(
                instance: ::aetheris_core::id::InstanceId,
                after: Option<::aetheris_core::id::JobId>,
                limit: usize
            )
                -> Vec<(::aetheris_core::id::JobId, ::aetheris_core::lease::Fence)>;
            in_doubt(limit: usize) -> Vec<::aetheris_core::ledger::LedgerRow>;
            job(scope: $crate::Scope, job: ::aetheris_core::id::JobId) -> Option<$crate::JobRow>;
            jobs(filter: $crate::JobFilter) -> $crate::JobPage;
            kept(scope: $crate::Scope, job: ::aetheris_core::id::JobId) -> Vec<$crate::KeptHead>;
            outbox(after: Option<u64>, limit: usize) -> Vec<$crate::PromiseRow>;
            plan(hash: ::aetheris_core::hash::Hash) -> Option<$crate::PlanDocument>;
            promised(author: ::aetheris_core::id::JobId, target: ::aetheris_core::id::JobId) -> Vec<$crate::PromiseRow>;
            status() -> $crate::StoreStatus;
            timers(scope: $crate::Scope, job: ::aetheris_core::id::JobId) -> Vec<$crate::TimerRow>;
            unresolved(limit: usize) -> Vec<::aetheris_core::ledger::LedgerRow>;
            waits(filter: $crate::JobFilter) -> $crate::WaitPage;
        }
    };
    ($read:ident: $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(
            fn $name(&self, $($argument: $type),*) -> $crate::Boxed<'_, Result<$answer, $crate::StoreError>> {
                self.$read(stringify!($name), move |inner| inner.$name($($argument),*))
            }
        )*
    };
}

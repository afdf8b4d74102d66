//! The registry: every statement that this store sends, one per file, and the place where a connection
//! keeps them prepared.

use rusqlite::{CachedStatement, Connection, Params, Row, Statement};

macro_rules! queries {
    ($($name:ident = $file:literal;)*) => {
        /// A statement, by the name of its file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Query {
            $($name,)*
        }

        impl Query {
            /// Every statement.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its text.
            pub(crate) const fn sql(self) -> &'static str {
                match self { $(Self::$name => include_str!(concat!("../queries/", $file, ".sql")),)* }
            }
        }
    };
}

queries! {
    AgentDelete = "agent_delete";
    AgentKnown = "agent_known";
    AgentPut = "agent_put";
    AgentRead = "agent_read";
    AgentsPage = "agents_page";
    Begin = "begin";
    BackupMark = "backup_mark";
    BeginRead = "begin_read";
    BootInsert = "boot_insert";
    BootNum = "boot_num";
    CheckpointPut = "checkpoint_put";
    CheckpointRead = "checkpoint_read";
    CheckpointSize = "checkpoint_size";
    ChildInsert = "child_insert";
    ChildrenPage = "children_page";
    ClientKey = "client_key";
    Commit = "commit";
    DataVersion = "data_version";
    Documents = "documents";
    EffectInsert = "effect_insert";
    EffectKnown = "effect_known";
    EffectNewest = "effect_newest";
    EffectsByJob = "effects_by_job";
    EventAt = "event_at";
    EventInsert = "event_insert";
    EventDoubtBefore = "event_doubt_before";
    EventLastOf = "event_last_of";
    EventOfEnd = "event_of_end";
    EventsPage = "events_page";
    EvidenceAt = "evidence_at";
    EvidenceByJob = "evidence_by_job";
    EvidenceInsert = "evidence_insert";
    EvidenceOfSuccess = "evidence_of_success";
    FolderKnown = "folder_known";
    FolderNamed = "folder_named";
    InboxConsumed = "inbox_consumed";
    InboxCount = "inbox_count";
    InboxCountOfKey = "inbox_count_of_key";
    InboxDeliver = "inbox_deliver";
    InboxInsert = "inbox_insert";
    InboxHeads = "inbox_heads";
    InboxKept = "inbox_kept";
    InboxState = "inbox_state";
    JobById = "job_by_id";
    JobByNum = "job_by_num";
    JobClaim = "job_claim";
    JobEnlist = "job_enlist";
    JobHold = "job_hold";
    JobHot = "job_hot";
    JobInsert = "job_insert";
    JobNum = "job_num";
    JobStatus = "job_status";
    JobRenew = "job_renew";
    JobTouch = "job_touch";
    JobUpdate = "job_update";
    JobsArrived = "jobs_arrived";
    JobsCounted = "jobs_counted";
    JobsEnd = "jobs_end";
    JobsMisnumbered = "jobs_misnumbered";
    JobsNext = "jobs_next";
    JobsNextDelayed = "jobs_next_delayed";
    JobsOpen = "jobs_open";
    JobsPage = "jobs_page";
    JobsPageOfAgent = "jobs_page_of_agent";
    JobsPageOfAgentStatus = "jobs_page_of_agent_status";
    JobsPageOfDoubt = "jobs_page_of_doubt";
    JobsPageOfLabel = "jobs_page_of_label";
    JobsPageOfSession = "jobs_page_of_session";
    JobsPageOfStatus = "jobs_page_of_status";
    JobsPageOfWait = "jobs_page_of_wait";
    JobsPageRunning = "jobs_page_running";
    JobSetAside = "job_set_aside";
    JobsPromote = "jobs_promote";
    JobsReady = "jobs_ready";
    LabelInsert = "label_insert";
    LabelKnown = "label_known";
    LeasesExpired = "leases_expired";
    LeasesOf = "leases_of";
    LedgerByJob = "ledger_by_job";
    LedgerByKey = "ledger_by_key";
    LedgerInDoubt = "ledger_in_doubt";
    LedgerInDoubtOpen = "ledger_in_doubt_open";
    LedgerInsert = "ledger_insert";
    LedgerUnresolved = "ledger_unresolved";
    LedgerUpdate = "ledger_update";
    MetaCounts = "meta_counts";
    MetaGeneration = "meta_generation";
    MetaRead = "meta_read";
    MetaRecount = "meta_recount";
    MetaSummary = "meta_summary";
    MetaUpdate = "meta_update";
    MetaWrites = "meta_writes";
    OutboxAbout = "outbox_about";
    OutboxDelete = "outbox_delete";
    OutboxInsert = "outbox_insert";
    OutboxKnown = "outbox_known";
    OutboxPage = "outbox_page";
    PlanKnown = "plan_known";
    PlanPut = "plan_put";
    PlanRead = "plan_read";
    RestoreBegun = "restore_begun";
    RestoreListed = "restore_listed";
    Rollback = "rollback";
    SessionAdvance = "session_advance";
    SessionAhead = "session_ahead";
    SessionEarlier = "session_earlier";
    Strays = "strays";
    StraysById = "strays_by_id";
    TenantInsert = "tenant_insert";
    TenantNum = "tenant_num";
    TenantsAll = "tenants_all";
    TimerDelete = "timer_delete";
    TimerDue = "timer_due";
    TimerPut = "timer_put";
    TimersByJob = "timers_by_job";
    TimersDue = "timers_due";
    TimersDueAfter = "timers_due_after";
    TimersNext = "timers_next";
    WalCheckpoint = "wal_checkpoint";
    WalPages = "wal_pages";
    WalRestart = "wal_restart";
    WalTruncate = "wal_truncate";
}

/// A connection's statements, each prepared at its first use and kept: finding one again is an index. When
/// this is dropped they stay with the connection, for the next one to find by their text.
pub(crate) struct Prepared<'c> {
    conn: &'c Connection,
    slots: Vec<Option<CachedStatement<'c>>>,
}

impl<'c> Prepared<'c> {
    pub(crate) fn new(conn: &'c Connection) -> Self {
        Self { conn, slots: Query::ALL.iter().map(|_| None).collect() }
    }

    /// The connection itself, for what is no statement.
    pub(crate) fn connection(&self) -> &'c Connection {
        self.conn
    }

    /// A statement, ready to be run.
    pub(crate) fn get(&mut self, query: Query) -> rusqlite::Result<&mut Statement<'c>> {
        let slot = &mut self.slots[query as usize];
        match slot {
            Some(statement) => Ok(statement),
            None => Ok(slot.insert(self.conn.prepare_cached(query.sql())?)),
        }
    }

    /// Runs a statement that answers with no rows; how many it changed.
    pub(crate) fn run(&mut self, query: Query, params: impl Params) -> rusqlite::Result<usize> {
        self.get(query)?.execute(params)
    }

    /// The first row, mapped, if there is one.
    pub(crate) fn first<T, E: From<rusqlite::Error>>(
        &mut self,
        query: Query,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let mut rows = self.get(query)?.query(params)?;
        rows.next()?.map(map).transpose()
    }

    /// A number that changes with the writes of every connection but this one. `None` where it cannot be asked for.
    pub(crate) fn data_version(&mut self) -> Option<i64> {
        self.first(Query::DataVersion, [], |row| row.get(0)).ok().flatten()
    }

    /// All rows, mapped.
    pub(crate) fn all<T, E: From<rusqlite::Error>>(
        &mut self,
        query: Query,
        params: impl Params,
        mut map: impl FnMut(&Row<'_>) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let mut rows = self.get(query)?.query(params)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(map(row)?);
        }
        Ok(found)
    }

    /// Rows, mapped and handed over one by one until one is not taken.
    pub(crate) fn until<T, E: From<rusqlite::Error>>(
        &mut self,
        query: Query,
        params: impl Params,
        map: impl Fn(&Row<'_>) -> Result<T, E>,
        mut take: impl FnMut(T) -> bool,
    ) -> Result<(), E> {
        let mut rows = self.get(query)?.query(params)?;
        while let Some(row) = rows.next()? {
            if !take(map(row)?) {
                break;
            }
        }
        Ok(())
    }

    /// Whether there is a row.
    pub(crate) fn exists(&mut self, query: Query, params: impl Params) -> rusqlite::Result<bool> {
        self.get(query)?.exists(params)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use aetheris_core::job::JobStatus;
    use rusqlite::StatementStatus;

    use super::*;
    use crate::codes::Code as _;

    pub(crate) fn schema() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        crate::open::stable(&conn).unwrap();
        for migration in crate::migrate::MIGRATIONS {
            conn.execute_batch(migration).unwrap();
        }
        conn
    }

    /// How SQLite would run a statement, one line per step.
    fn plan(conn: &Connection, query: Query) -> String {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {}", query.sql())).unwrap();
        for parameter in 1..=statement.parameter_count() {
            statement.raw_bind_parameter(parameter, rusqlite::types::Null).unwrap();
        }
        let (mut rows, mut steps) = (statement.raw_query(), Vec::new());
        while let Some(row) = rows.next().unwrap() {
            steps.push(row.get::<_, String>(3).unwrap());
        }
        steps.join("; ")
    }

    #[test]
    fn every_statement_prepares_and_every_file_is_one_of_them() {
        let conn = schema();
        for query in Query::ALL {
            conn.prepare(query.sql()).unwrap_or_else(|error| panic!("{query:?}: {error}"));
        }
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/queries")).unwrap().count();
        assert_eq!(files, Query::ALL.len());
    }

    /// Which jobs have ended the core says; a statement has the codes, as only constants find an index of some rows.
    #[test]
    fn statements_that_tell_ended_jobs_from_others_name_those_of_the_core() {
        let ended = || JobStatus::ALL.into_iter().filter(|status| status.is_terminal()).map(|status| status.code());
        let open = ended().map(|code| format!("status <> {code}")).collect::<Vec<_>>().join(" AND ");
        let over = format!("status IN ({})", ended().map(|code| code.to_string()).collect::<Vec<_>>().join(", "));
        let statements = Query::ALL.iter().map(|query| query.sql());
        let mut told = 0;
        for sql in statements.chain([include_str!("../migrations/0005_open.sql")]) {
            let plain = ["j.", "a.", "earlier.", "jobs."]
                .iter()
                .fold(sql.to_owned(), |sql, alias| sql.replace(&format!("{alias}status"), "status"));
            let left = plain.replace(&open, "").replace(&over, "");
            told += usize::from(left != plain);
            // A row of the ledger has a status of its own.
            let left = left.replace("l.status", "");
            for other in ["status <> ", "status NOT IN", "status IN ("] {
                assert!(!left.contains(other), "{sql}");
            }
        }
        assert!(told >= 10, "{told}");
    }

    /// What is left of a job that has gone is looked for in every table that names jobs.
    #[test]
    fn rows_of_no_job_are_looked_for_in_every_table_that_has_jobs() {
        let conn = schema();
        let tables = "SELECT t.name, c.type FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
                      WHERE t.type = 'table' AND c.name = 'job'";
        let (mut of, mut sql) = (conn.prepare(tables).unwrap(), Prepared::new(&conn));
        let mut by_type = |wanted: &str| {
            let row = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
            let found = of.query_map([], row).unwrap().map(Result::unwrap);
            found.filter(|(_, of)| of == wanted).map(|(name, _)| name).collect::<Vec<_>>()
        };
        for (query, kind, value) in [(Query::Strays, "INTEGER", "77"), (Query::StraysById, "BLOB", "zeroblob(16)")] {
            let mut tables = by_type(kind);
            assert!(tables.len() > 1, "{kind}: {tables:?}");
            for table in &tables {
                stray(&conn, table, value);
            }
            let bounds = if kind == "INTEGER" { vec![0, 100] } else { vec![] };
            let found = sql.all(query, rusqlite::params_from_iter(bounds), |row| row.get::<_, String>(0));
            let mut found: Vec<String> = found.unwrap();
            tables.sort();
            found.sort();
            assert_eq!(found, tables);
            assert!(found.iter().all(|table| crate::amiss::leftover(table).is_some()), "{found:?}");
        }
    }

    /// Puts a row of a job into a table, whatever its other columns.
    fn stray(conn: &Connection, table: &str, job: &str) {
        conn.pragma_update(None, "ignore_check_constraints", true).unwrap();
        let columns = format!("SELECT name, type FROM pragma_table_info('{table}') WHERE name <> 'num'");
        let mut columns = conn.prepare(&columns).unwrap();
        let row = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
        let columns: Vec<_> = columns.query_map([], row).unwrap().map(Result::unwrap).collect();
        let value = |(name, of): &(String, String)| match (name.as_str(), of.as_str()) {
            ("job", _) => job.to_owned(),
            (_, "INTEGER") => "1".to_owned(),
            (_, "BLOB") => "x'01'".to_owned(),
            _ => "'a'".to_owned(),
        };
        let (names, values): (Vec<_>, Vec<_>) = columns.iter().map(|column| (column.0.as_str(), value(column))).unzip();
        conn.execute(&format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", ")), [])
            .unwrap();
    }

    /// A reader's statements go back to the connection after each look, which takes what is bound from them.
    #[test]
    fn other_values_do_not_make_a_statement_be_prepared_again() {
        let conn = schema();
        let again = |query: Query| {
            for round in 0..3 {
                let mut sql = Prepared::new(&conn);
                let statement = sql.get(query).unwrap();
                for parameter in 1..=statement.parameter_count() {
                    statement.raw_bind_parameter(parameter, round).unwrap();
                }
                let mut rows = statement.raw_query();
                while rows.next().unwrap().is_some() {}
            }
            Prepared::new(&conn).get(query).unwrap().get_status(StatementStatus::RePrepare)
        };
        let begins = |query: &Query| {
            let words = query.sql().lines().find(|line| !line.trim_start().starts_with("--"));
            words.is_some_and(|words| words.starts_with("SELECT") || words.starts_with("WITH"))
        };
        let reads: Vec<Query> = Query::ALL.iter().copied().filter(begins).collect();
        assert!(reads.contains(&Query::EventDoubtBefore) && reads.contains(&Query::SessionAhead));
        for query in reads {
            assert_eq!(again(query), 0, "{query:?}");
        }
    }

    /// A status that is left out would be in no list of all jobs.
    #[test]
    fn a_page_of_all_jobs_has_a_part_for_every_status() {
        let page = Query::JobsPage.sql();
        for status in JobStatus::ALL {
            let part = match status {
                JobStatus::Running => "lease_until IS NOT NULL".to_owned(),
                listed => format!("listed = {} ", listed.code()),
            };
            assert_eq!(page.matches(&part).count(), 1, "{status:?}");
        }
    }

    #[test]
    fn hot_statements_use_their_index_and_nothing_is_walked() {
        let conn = schema();
        for (query, index) in [
            (Query::ClientKey, "jobs_client_key (tenant=? AND agent=? AND client_key=?)"),
            (Query::EventAt, "events_job"),
            (Query::EventDoubtBefore, "events_job (job=? AND seq<?)"),
            (Query::EventLastOf, "events_job (job=?)"),
            (Query::EventOfEnd, "events_job (job=?)"),
            (Query::EventsPage, "events_job"),
            (Query::InboxCount, "inbox_kept"),
            (Query::InboxHeads, "inbox_kept"),
            (Query::InboxKept, "inbox_kept"),
            (Query::InboxCountOfKey, "inbox_kept"),
            (Query::InboxState, "inbox_signal"),
            (Query::JobById, "jobs_id"),
            (Query::JobHot, "jobs_id"),
            (Query::JobRenew, "jobs_id"),
            (Query::JobsNextDelayed, "jobs_delayed"),
            (Query::JobsPage, "COVERING INDEX jobs_listed (tenant=? AND listed=? AND id<?)"),
            (Query::JobsPage, "jobs USING INTEGER PRIMARY KEY (rowid=?)"),
            (Query::JobsPageOfAgent, "jobs_agent (tenant=? AND agent=? AND id<?)"),
            (Query::JobsPageOfAgentStatus, "jobs_agent_listed (tenant=? AND agent=? AND listed=? AND id<?)"),
            (Query::JobsPageOfDoubt, "jobs USING INTEGER PRIMARY KEY (rowid=?)"),
            (Query::JobsPageOfDoubt, "ledger USING INDEX ledger_in_doubt (tenant=?)"),
            (Query::JobsPageOfLabel, "PRIMARY KEY (tenant=? AND key=? AND value=? AND job<?)"),
            (Query::JobsPageOfSession, "jobs_session (tenant=? AND session=? AND id<?)"),
            (Query::JobsPageOfWait, "jobs_blocked (tenant=? AND wait_type=? AND id<?)"),
            (Query::JobsPageRunning, "jobs_held"),
            (Query::JobsPageOfStatus, "jobs_listed (tenant=? AND listed=? AND id<?)"),
            (Query::JobsPromote, "jobs_delayed"),
            (Query::JobsReady, "jobs_pending"),
            (Query::LeasesExpired, "jobs_held"),
            (Query::LedgerByJob, "ledger_job"),
            (Query::LedgerInDoubt, "ledger_in_doubt (tenant=? AND (updated_at,key)>(?,?))"),
            (Query::LedgerInDoubtOpen, "ledger_in_doubt (tenant=? AND (updated_at,key)>(?,?))"),
            (Query::LedgerUnresolved, "ledger_unresolved (tenant=? AND (updated_at,key)>(?,?))"),
            (Query::SessionAdvance, "jobs_session_open"),
            (Query::SessionAhead, "jobs_session_open (tenant=? AND agent=? AND session=? AND rowid<?)"),
            (Query::SessionEarlier, "jobs_session_open"),
            (Query::TimersDue, "timers_due"),
            (Query::TimersDueAfter, "timers_due"),
            (Query::TimersNext, "timers_due"),
        ] {
            let plan = plan(&conn, query);
            assert!(plan.contains(index), "{query:?} does not use {index}: {plan}");
            assert!(!plan.contains("SCAN") || plan.contains("INDEX"), "{query:?} walks a table: {plan}");
        }
        // In the order of its index, so that a page is as cheap in a large store as in a small one.
        for query in [
            Query::EventsPage,
            Query::JobsPageOfAgent,
            Query::JobsPageOfAgentStatus,
            Query::JobsPageOfLabel,
            Query::JobsPageOfSession,
            Query::JobsPageOfStatus,
            Query::JobsPageOfWait,
            Query::JobsReady,
            Query::LedgerInDoubt,
            Query::LedgerInDoubtOpen,
            Query::LedgerUnresolved,
            Query::SessionAhead,
            Query::TimersDue,
            Query::TimersDueAfter,
        ] {
            let plan = plan(&conn, query);
            assert!(!plan.contains("TEMP B-TREE"), "{query:?} sorts: {plan}");
        }
    }
}

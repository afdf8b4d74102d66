-- One row: the number of the store's life, the clock's record and the jobs per status. The counts are
-- kept here because this row is written by exactly the transactions that move a job.
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    generation INTEGER NOT NULL CHECK (generation >= 1),
    clock INTEGER NOT NULL,
    clock_offset INTEGER NOT NULL,
    clock_boot INTEGER NOT NULL,
    pending INTEGER NOT NULL DEFAULT 0 CHECK (pending >= 0),
    running INTEGER NOT NULL DEFAULT 0 CHECK (running >= 0),
    waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    parked INTEGER NOT NULL DEFAULT 0 CHECK (parked >= 0),
    completed INTEGER NOT NULL DEFAULT 0 CHECK (completed >= 0),
    failed INTEGER NOT NULL DEFAULT 0 CHECK (failed >= 0),
    cancelled INTEGER NOT NULL DEFAULT 0 CHECK (cancelled >= 0)
) STRICT;

-- Names for people; the program has its own.
CREATE TABLE event_kinds (code INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;
CREATE TABLE job_statuses (code INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;
CREATE TABLE ledger_statuses (code INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;
INSERT INTO job_statuses (code, name) VALUES
    (0, 'pending'), (1, 'running'), (2, 'waiting'), (3, 'parked'), (4, 'completed'), (5, 'failed'), (6, 'cancelled');
INSERT INTO ledger_statuses (code, name) VALUES
    (0, 'started'), (1, 'committed'), (2, 'refused_retryable'), (3, 'refused_permanent'), (4, 'not_sent'),
    (5, 'in_doubt'), (6, 'failed_unresolved');

-- What every write reads or changes stands first, so that it is found without walking the rest.
-- `ready` says that the job can be claimed now; `delayed_until` that only time is missing. Both are
-- for finding it; what people and the fold see is `not_before`.
CREATE TABLE jobs (
    num INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL CHECK (seq >= 0),
    generation INTEGER NOT NULL CHECK (generation >= 1),
    epoch INTEGER NOT NULL CHECK (epoch >= 0),
    status INTEGER NOT NULL CHECK (status BETWEEN 0 AND 6),
    head BLOB NOT NULL CHECK (length(head) = 32),
    updated_at INTEGER NOT NULL,
    ready INTEGER NOT NULL CHECK (ready IN (0, 1)),
    delayed_until INTEGER,
    not_before INTEGER,
    lease_until INTEGER,
    attempt BLOB,
    instance BLOB,
    worker TEXT,
    end_requested INTEGER CHECK (end_requested IN (1, 2)),
    wait_type INTEGER CHECK (wait_type BETWEEN 0 AND 3),
    plan_hash BLOB,
    error TEXT,
    waiting TEXT,
    id BLOB NOT NULL CHECK (length(id) = 16),
    agent TEXT NOT NULL,
    agent_version TEXT NOT NULL,
    priority INTEGER NOT NULL,
    session TEXT,
    labels TEXT,
    client_key TEXT,
    client_body BLOB,
    created_at INTEGER NOT NULL,
    -- A running job has a holder, and nothing else has one.
    CHECK ((status = 1) = (lease_until IS NOT NULL)),
    CHECK ((lease_until IS NULL) = (attempt IS NULL)),
    CHECK ((lease_until IS NULL) = (instance IS NULL)),
    CHECK ((lease_until IS NULL) = (worker IS NULL)),
    -- Only a pending job can be claimed, now or later, and never both.
    CHECK (status = 0 OR (ready = 0 AND delayed_until IS NULL)),
    CHECK (ready = 0 OR delayed_until IS NULL),
    CHECK ((waiting IS NULL) = (wait_type IS NULL)),
    CHECK ((client_key IS NULL) = (client_body IS NULL))
) STRICT;
CREATE UNIQUE INDEX jobs_id ON jobs (id);
CREATE INDEX jobs_pending ON jobs (ready, priority DESC, id) WHERE status = 0;
CREATE INDEX jobs_delayed ON jobs (delayed_until) WHERE delayed_until IS NOT NULL;
CREATE INDEX jobs_held ON jobs (lease_until, instance) WHERE lease_until IS NOT NULL;
-- Completed jobs are most of a list, and pending and running ones few: both are found without it.
CREATE INDEX jobs_listed ON jobs (status, id) WHERE status IN (2, 3, 5, 6);
CREATE INDEX jobs_session ON jobs (session, id) WHERE session IS NOT NULL;
CREATE INDEX jobs_session_open ON jobs (agent, session, id) WHERE session IS NOT NULL AND status < 4;
CREATE UNIQUE INDEX jobs_client_key ON jobs (agent, client_key) WHERE client_key IS NOT NULL;

-- A payload says its own hash: `payload_hash` is for one that stands here no more, or encrypted. The chain
-- goes over the hash in either case, and over the row before, whose hash is not kept twice either.
-- In order of arrival and not by job: the tails of many jobs would be as many pages in every commit.
CREATE TABLE events (
    num INTEGER PRIMARY KEY,
    job INTEGER NOT NULL,
    seq INTEGER NOT NULL CHECK (seq >= 1),
    kind INTEGER NOT NULL,
    schema_version INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    at INTEGER NOT NULL,
    id BLOB NOT NULL,
    payload_hash BLOB,
    hash BLOB NOT NULL,
    payload TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_job ON events (job, seq);

CREATE TABLE checkpoints (
    job INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    state BLOB NOT NULL
) STRICT;

CREATE TABLE ledger (
    key BLOB PRIMARY KEY CHECK (length(key) = 16),
    job INTEGER NOT NULL,
    permit INTEGER NOT NULL CHECK (permit >= 1),
    permit_id BLOB NOT NULL CHECK (length(permit_id) = 16),
    status INTEGER NOT NULL CHECK (status BETWEEN 0 AND 6),
    disproved INTEGER NOT NULL CHECK (disproved IN (0, 1)),
    class INTEGER NOT NULL CHECK (class BETWEEN 0 AND 2),
    generation INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    input_hash BLOB NOT NULL,
    node TEXT NOT NULL,
    tool TEXT NOT NULL,
    CHECK (disproved = 0 OR status = 5)
) STRICT, WITHOUT ROWID;
CREATE INDEX ledger_job ON ledger (job);
CREATE INDEX ledger_in_doubt ON ledger (updated_at, key) WHERE status = 5 AND disproved = 0;

-- One per key and permit; never changed and never replaced.
CREATE TABLE effects (
    job INTEGER NOT NULL,
    key BLOB NOT NULL CHECK (length(key) = 16),
    permit INTEGER NOT NULL CHECK (permit >= 1),
    permit_id BLOB NOT NULL CHECK (length(permit_id) = 16),
    at INTEGER NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (job, key, permit)
) STRICT, WITHOUT ROWID;

CREATE TABLE evidence (
    job INTEGER NOT NULL,
    permit_id BLOB NOT NULL CHECK (length(permit_id) = 16),
    key BLOB NOT NULL,
    permit INTEGER NOT NULL,
    conflict INTEGER NOT NULL CHECK (conflict IN (0, 1)),
    at INTEGER NOT NULL,
    node TEXT NOT NULL,
    outcome TEXT NOT NULL,
    PRIMARY KEY (job, permit_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (
    num INTEGER PRIMARY KEY,
    signal BLOB NOT NULL CHECK (length(signal) = 16),
    job INTEGER NOT NULL,
    state INTEGER NOT NULL CHECK (state IN (0, 1)),
    wait_type INTEGER CHECK (wait_type BETWEEN 0 AND 3),
    received_at INTEGER NOT NULL,
    key TEXT NOT NULL,
    payload TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX inbox_signal ON inbox (job, signal);
CREATE INDEX inbox_kept ON inbox (job, num) WHERE state = 0;

-- Under the job's id and not its number: due timers come in the order of ids, out of one index.
CREATE TABLE timers (
    job BLOB NOT NULL CHECK (length(job) = 16),
    timer TEXT NOT NULL,
    due INTEGER NOT NULL,
    PRIMARY KEY (job, timer)
) STRICT, WITHOUT ROWID;
CREATE INDEX timers_due ON timers (due, job, timer);

CREATE TABLE plans (
    hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
    doc TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE agents (
    name TEXT PRIMARY KEY,
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    plan_hash BLOB NOT NULL CHECK (length(plan_hash) = 32),
    version TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    doc TEXT NOT NULL,
    source TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- For people with a shell.
CREATE VIEW job_events AS
SELECT lower(hex(j.id)) AS job, e.seq, coalesce(k.name, 'unknown_' || e.kind) AS kind, e.schema_version,
       e.generation || '.' || e.epoch AS fence,
       strftime('%Y-%m-%dT%H:%M:%f', e.at / 1000000.0, 'unixepoch') AS at,
       lower(hex(e.id)) AS id, e.payload,
       lower(hex(coalesce((SELECT p.hash FROM events p WHERE p.job = e.job AND p.seq = e.seq - 1), zeroblob(32))))
           AS prev_hash,
       lower(hex(e.hash)) AS hash
FROM events e JOIN jobs j ON j.num = e.job LEFT JOIN event_kinds k ON k.code = e.kind;

CREATE VIEW job_list AS
SELECT lower(hex(j.id)) AS job, s.name AS status, j.agent, j.agent_version, j.seq,
       j.generation || '.' || j.epoch AS fence, j.worker, j.session, j.priority,
       strftime('%Y-%m-%dT%H:%M:%f', j.created_at / 1000000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%f', j.updated_at / 1000000.0, 'unixepoch') AS updated_at,
       j.waiting, j.error
FROM jobs j JOIN job_statuses s ON s.code = j.status;

CREATE VIEW ledger_list AS
SELECT lower(hex(l.key)) AS key, lower(hex(j.id)) AS job, l.node, l.tool, l.permit, s.name AS status, l.disproved,
       l.generation || '.' || l.epoch AS fence,
       strftime('%Y-%m-%dT%H:%M:%f', l.deadline / 1000000.0, 'unixepoch') AS deadline,
       strftime('%Y-%m-%dT%H:%M:%f', l.updated_at / 1000000.0, 'unixepoch') AS updated_at
FROM ledger l JOIN jobs j ON j.num = l.job JOIN ledger_statuses s ON s.code = l.status;

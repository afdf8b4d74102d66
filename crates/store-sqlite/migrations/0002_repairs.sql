-- What the second version of the schema adds. One section per topic.

-- 1. Jobs can be paused: a status of its own (7), why and since when. SQLite cannot change a CHECK, so the table is
-- written anew; its numbers, which everything else refers to, stay.
ALTER TABLE meta ADD COLUMN paused INTEGER NOT NULL DEFAULT 0 CHECK (paused >= 0);
INSERT INTO job_statuses (code, name) VALUES (7, 'paused');
DROP VIEW job_events;
DROP VIEW job_list;
DROP VIEW ledger_list;

-- What every write reads or changes stands first, so that it is found without walking the rest.
-- `ready` says that the job can be claimed now; `delayed_until` that only time is missing. Both are
-- for finding it; what people and the fold see is `not_before`. `listed` is the status by which lists find it (section 8).
CREATE TABLE jobs_next (
    num INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL CHECK (seq >= 0),
    generation INTEGER NOT NULL CHECK (generation >= 1),
    epoch INTEGER NOT NULL CHECK (epoch >= 0),
    status INTEGER NOT NULL CHECK (status BETWEEN 0 AND 7),
    head BLOB NOT NULL CHECK (length(head) = 32),
    updated_at INTEGER NOT NULL,
    ready INTEGER NOT NULL CHECK (ready IN (0, 1)),
    listed INTEGER,
    delayed_until INTEGER,
    not_before INTEGER,
    lease_until INTEGER,
    attempt BLOB,
    instance BLOB,
    worker TEXT,
    end_requested INTEGER CHECK (end_requested IN (1, 2, 3)),
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
    pause_reason INTEGER CHECK (pause_reason IN (0, 1)),
    paused_at INTEGER,
    -- A running job has a holder, and nothing else has one.
    CHECK ((status = 1) = (lease_until IS NOT NULL)),
    CHECK ((lease_until IS NULL) = (attempt IS NULL)),
    CHECK ((lease_until IS NULL) = (instance IS NULL)),
    CHECK ((lease_until IS NULL) = (worker IS NULL)),
    -- A paused job says why and since when, and nothing else does.
    CHECK ((status = 7) = (pause_reason IS NOT NULL)),
    CHECK ((pause_reason IS NULL) = (paused_at IS NULL)),
    -- Only a pending job can be claimed, now or later, and never both.
    CHECK (status = 0 OR (ready = 0 AND delayed_until IS NULL)),
    CHECK (ready = 0 OR delayed_until IS NULL),
    CHECK (listed IS NULL OR (listed = status AND status <> 1)),
    CHECK ((waiting IS NULL) = (wait_type IS NULL)),
    CHECK ((client_key IS NULL) = (client_body IS NULL))
) STRICT;
INSERT INTO jobs_next (num, seq, generation, epoch, status, head, updated_at, ready, listed, delayed_until, not_before, lease_until, attempt,
                       instance, worker, end_requested, wait_type, plan_hash, error, waiting, id, agent, agent_version,
                       priority, session, labels, client_key, client_body, created_at)
SELECT num, seq, generation, epoch, status, head, updated_at, ready, nullif(status, 1), delayed_until, not_before, lease_until, attempt,
       instance, worker, end_requested, wait_type, plan_hash, error, waiting, id, agent, agent_version,
       priority, session, labels, client_key, client_body, created_at
FROM jobs;
DROP TABLE jobs;
ALTER TABLE jobs_next RENAME TO jobs;
CREATE UNIQUE INDEX jobs_id ON jobs (id);
CREATE INDEX jobs_pending ON jobs (ready, priority DESC, id) WHERE status = 0;
CREATE INDEX jobs_delayed ON jobs (delayed_until) WHERE delayed_until IS NOT NULL;
CREATE INDEX jobs_held ON jobs (lease_until, instance) WHERE lease_until IS NOT NULL;
CREATE INDEX jobs_session ON jobs (session, id) WHERE session IS NOT NULL;
CREATE INDEX jobs_session_open ON jobs (agent, session) WHERE session IS NOT NULL AND status NOT IN (4, 5, 6);
CREATE UNIQUE INDEX jobs_client_key ON jobs (agent, client_key) WHERE client_key IS NOT NULL;

-- The views as they were, and why and since when a job is paused.
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
       j.waiting, j.error,
       CASE j.pause_reason WHEN 0 THEN 'operator' WHEN 1 THEN 'restored' END AS pause_reason,
       strftime('%Y-%m-%dT%H:%M:%f', j.paused_at / 1000000.0, 'unixepoch') AS paused_at
FROM jobs j JOIN job_statuses s ON s.code = j.status;

CREATE VIEW ledger_list AS
SELECT lower(hex(l.key)) AS key, lower(hex(j.id)) AS job, l.node, l.tool, l.permit, s.name AS status, l.disproved,
       l.generation || '.' || l.epoch AS fence,
       strftime('%Y-%m-%dT%H:%M:%f', l.deadline / 1000000.0, 'unixepoch') AS deadline,
       strftime('%Y-%m-%dT%H:%M:%f', l.updated_at / 1000000.0, 'unixepoch') AS updated_at
FROM ledger l JOIN jobs j ON j.num = l.job JOIN ledger_statuses s ON s.code = l.status;

-- 2. Checkpoints. A state is kept in the form of its author's build: one of another version is not read.
ALTER TABLE checkpoints ADD COLUMN version INTEGER NOT NULL DEFAULT 1;

-- 3. What the folder has seen: the folder's name and that of the last opening, as the file beside the database has
-- them; how many transactions have written without an event, which with the number of the last event says how far the
-- database has come; and whether this is a backup, which only a restore makes usable.
ALTER TABLE meta ADD COLUMN folder BLOB CHECK (folder IS NULL OR length(folder) = 16);
ALTER TABLE meta ADD COLUMN opening BLOB CHECK (opening IS NULL OR length(opening) = 16);
ALTER TABLE meta ADD COLUMN writes INTEGER NOT NULL DEFAULT 0 CHECK (writes >= 0);
ALTER TABLE meta ADD COLUMN copied INTEGER NOT NULL DEFAULT 0 CHECK (copied IN (0, 1));

-- 4. The clocks of a permit. A deadline by a clock that can be set never alone says that a call can no longer arrive: the
-- boot clock that the permit was given by, its deadline there, how long the permit lives, and the first reading by
-- another boot clock. Rows of before have none of it, and begin with a first reading. A boot clock has a number here: its
-- name would be the longest of these columns.
CREATE TABLE boots (
    num INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16)
) STRICT;
ALTER TABLE ledger ADD COLUMN boot INTEGER;
ALTER TABLE ledger ADD COLUMN boot_deadline INTEGER;
ALTER TABLE ledger ADD COLUMN lifetime INTEGER;
ALTER TABLE ledger ADD COLUMN seen_boot INTEGER;
ALTER TABLE ledger ADD COLUMN seen_at INTEGER;

-- 5. Calls that their job's end left unresolved stay listed.
CREATE INDEX ledger_unresolved ON ledger (updated_at, key) WHERE status IN (5, 6) AND disproved = 0;

-- 6. Clock: which boot clock the mark was taken by. Null where an older build has taken it.
ALTER TABLE meta ADD COLUMN clock_boot_id BLOB CHECK (clock_boot_id IS NULL OR length(clock_boot_id) = 16);

-- 7. Sessions: their jobs run in the order in which they came. A database of before may have jobs marked as ready by
-- their ids.
UPDATE jobs SET ready = (num = (
    SELECT min(first.num) FROM jobs AS first
    WHERE first.agent = jobs.agent AND first.session = jobs.session AND first.session IS NOT NULL AND first.status NOT IN (4, 5, 6)))
WHERE session IS NOT NULL AND status = 0 AND delayed_until IS NULL;

-- 8. Lists: each filter that the interface offers finds its page in an index, newest first. A job enters and leaves them
-- with its creation, its claims and its rests: none is touched by a step. Those that are held now are few
-- (`jobs_held`), and one that is claimed by the transaction that made it pending never enters: `listed` is set where it
-- is still pending at the end. Claims find theirs by priority (`jobs_pending`). A tenant will stand first.
CREATE INDEX jobs_listed ON jobs (listed, id) WHERE listed IS NOT NULL;
CREATE INDEX jobs_agent ON jobs (agent, id);
CREATE INDEX jobs_agent_listed ON jobs (agent, listed, id) WHERE listed <> 4;
CREATE INDEX jobs_blocked ON jobs (wait_type, id) WHERE wait_type IS NOT NULL;
CREATE TABLE job_labels (
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    job BLOB NOT NULL CHECK (length(job) = 16),
    PRIMARY KEY (key, value, job)
) STRICT, WITHOUT ROWID;
-- Labels that cannot be read are left where they stand: they keep no database from being opened.
INSERT OR IGNORE INTO job_labels (key, value, job)
SELECT label.key, label.value, jobs.id
FROM jobs, json_each(iif(json_valid(jobs.labels), jobs.labels, '{}')) AS label
WHERE jobs.labels IS NOT NULL AND label.type = 'text';

-- 9. Kept signals: what a payload takes in memory, by its author's estimate, since every look at the job brings it. Those
-- of before were accepted within the bounds of their time and count as nothing.
ALTER TABLE inbox ADD COLUMN memory INTEGER NOT NULL DEFAULT 0 CHECK (memory >= 0);

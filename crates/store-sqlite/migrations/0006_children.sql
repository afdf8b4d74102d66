-- What the sixth version of the schema adds: child jobs, and what a unit promises beside its job.

-- 1. A job can wait for a child (4). Only a CHECK becomes wider, so that nothing that is stored has to be written anew: the
-- statements that follow have every connection read the schema again.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema
SET sql = replace(sql, 'CHECK (wait_type BETWEEN 0 AND 3)', 'CHECK (wait_type BETWEEN 0 AND 4)')
WHERE type = 'table' AND name = 'jobs';
PRAGMA writable_schema = RESET;

-- 2. What was promised and is not done. `seq` is the place of the event that says what.
CREATE TABLE outbox (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    kind INTEGER NOT NULL,
    author BLOB NOT NULL CHECK (length(author) = 16),
    target BLOB NOT NULL CHECK (length(target) = 16),
    node TEXT,
    seq INTEGER
) STRICT;
CREATE INDEX outbox_about ON outbox (author, target);

-- 3. The jobs that a job has asked for, by their numbers.
CREATE TABLE children (
    parent INTEGER NOT NULL,
    child INTEGER NOT NULL,
    on_parent_end INTEGER NOT NULL CHECK (on_parent_end IN (0, 1)),
    node TEXT NOT NULL,
    PRIMARY KEY (parent, child)
) STRICT, WITHOUT ROWID;

-- 4. For people with a shell.
CREATE VIEW outbox_list AS
SELECT o.num, CASE o.kind WHEN 0 THEN 'create_child' WHEN 1 THEN 'tell_parent' WHEN 2 THEN 'cancel_child'
                          WHEN 3 THEN 'cancel_children' END AS kind,
       lower(hex(o.author)) AS author, lower(hex(o.target)) AS target, o.node, o.seq
FROM outbox o;

-- The evidence of a run as plain tables: ids and hashes are lower-case hexadecimal text, times microseconds,
-- a fence is generation * 2^32 + epoch, a permit that a tool was shown generation * 2^32 + number. No constraint:
-- what is wrong here is for the queries to find.
CREATE TABLE jobs (job TEXT, seq INTEGER, fence INTEGER, epoch INTEGER, status TEXT, head TEXT, lease_until INTEGER,
                   attempt TEXT, waiting TEXT, agent TEXT, created_at INTEGER);
CREATE TABLE events (job TEXT, seq INTEGER, kind TEXT, code INTEGER, schema_version INTEGER, generation INTEGER,
                     epoch INTEGER, fence INTEGER, at INTEGER, id TEXT, payload_hash TEXT, hash TEXT, payload TEXT);
CREATE TABLE ledger (key TEXT, job TEXT, node TEXT, permit INTEGER, permit_id TEXT, status TEXT, disproved INTEGER,
                     deadline INTEGER, lifetime INTEGER, tool TEXT);
CREATE TABLE effects (job TEXT, key TEXT, permit INTEGER, at INTEGER, result TEXT);
-- What was said of a call that its permission no longer stood for.
CREATE TABLE evidence (job TEXT, key TEXT, permit INTEGER, conflict INTEGER, outcome TEXT);
CREATE TABLE inbox (job TEXT, num INTEGER, state INTEGER, wait_type TEXT, key TEXT, payload TEXT, signal TEXT);
CREATE TABLE listed_doubts (key TEXT);
-- What the tools themselves have logged.
CREATE TABLE witness (line INTEGER, kind TEXT, acts INTEGER, at INTEGER, fence INTEGER, job TEXT, key TEXT, node TEXT,
                      permit INTEGER, result_hash TEXT, tool TEXT);
-- What clients were told.
CREATE TABLE submissions (num INTEGER, client_key TEXT, job TEXT);
CREATE TABLE signals (job TEXT, key TEXT, ack TEXT, payload_hash TEXT);
CREATE TABLE cancels (job TEXT);
CREATE TABLE pauses (job TEXT);
CREATE TABLE writes (job TEXT, event TEXT, unknown INTEGER);
CREATE TABLE run (quiet INTEGER);

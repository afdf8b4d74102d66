-- What is said of turns: no job is claimed before its `run_at`, and the jobs of a session run one after the other, in
-- the order in which they were accepted. Cases are claims of jobs that are sent for later, and claims of a job of a
-- session before which an earlier one was there.
WITH made AS (
    SELECT job, at, coalesce(payload ->> 'tenant', 'default') AS tenant, payload ->> 'agent' AS agent,
           payload ->> 'session' AS session,
           unixepoch(substr(payload ->> 'run_at', 1, 19)) * 1000000 + substr(payload ->> 'run_at', 21, 6) AS run_at
    FROM events WHERE kind = 'job_created'
), claims AS (
    SELECT job, at FROM events WHERE kind = 'job_claimed'
), ends AS (
    SELECT job, min(at) AS at FROM events WHERE kind IN ('job_completed', 'job_failed', 'job_cancelled') GROUP BY job
)
SELECT m.job AS place, 'later' AS kind, CASE WHEN c.at < m.run_at THEN 'it was claimed before its time' END AS violation
FROM made m JOIN claims c ON c.job = m.job WHERE m.run_at IS NOT NULL
UNION ALL
SELECT later.job, 'conversation', CASE WHEN coalesce(e.at > c.at, 1) THEN 'it was claimed before ' || earlier.job || ' had ended' END
FROM made later JOIN claims c ON c.job = later.job
JOIN made earlier ON earlier.tenant = later.tenant AND earlier.agent = later.agent AND earlier.session = later.session AND earlier.at < later.at
LEFT JOIN ends e ON e.job = earlier.job
WHERE earlier.at < c.at
UNION ALL
-- Of two that were accepted in one moment either may be the first.
SELECT two.job, 'conversation',
       CASE WHEN coalesce(ended_one.at > began_two.at, 1) AND coalesce(ended_two.at > began_one.at, 1)
            THEN 'it ran beside ' || one.job END
FROM made two JOIN made one ON one.tenant = two.tenant AND one.agent = two.agent AND one.session = two.session AND one.at = two.at AND one.job < two.job
JOIN claims began_one ON began_one.job = one.job JOIN claims began_two ON began_two.job = two.job
LEFT JOIN ends ended_one ON ended_one.job = one.job LEFT JOIN ends ended_two ON ended_two.job = two.job

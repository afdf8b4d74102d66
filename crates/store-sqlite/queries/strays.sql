-- Rows of jobs that are not there, by the jobs' numbers.
SELECT 'events', events.job, count(*) FROM events
WHERE events.job >= ?1 AND events.job < ?2 AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.num = events.job) GROUP BY events.job
UNION ALL
SELECT 'ledger', ledger.job, count(*) FROM ledger
WHERE ledger.job >= ?1 AND ledger.job < ?2 AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.num = ledger.job) GROUP BY ledger.job
UNION ALL
SELECT 'inbox', inbox.job, count(*) FROM inbox
WHERE inbox.job >= ?1 AND inbox.job < ?2 AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.num = inbox.job) GROUP BY inbox.job
UNION ALL
SELECT 'effects', effects.job, count(*) FROM effects
WHERE effects.job >= ?1 AND effects.job < ?2 AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.num = effects.job) GROUP BY effects.job
UNION ALL
SELECT 'evidence', evidence.job, count(*) FROM evidence
WHERE evidence.job >= ?1 AND evidence.job < ?2 AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.num = evidence.job) GROUP BY evidence.job
UNION ALL
SELECT 'checkpoints', checkpoints.job, count(*) FROM checkpoints
WHERE checkpoints.job >= ?1 AND checkpoints.job < ?2 AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.num = checkpoints.job) GROUP BY checkpoints.job
LIMIT 1000

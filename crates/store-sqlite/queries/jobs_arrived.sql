-- What no claim finds, or finds too early, is seen by what stands beside it: whether another job of its session is first.
SELECT num, id, listed IS nullif(status, 1), status = 0, ready, delayed_until, not_before, wait_type,
       CASE WHEN status = 0 AND session IS NOT NULL THEN EXISTS (
           SELECT 1 FROM jobs AS earlier
           WHERE earlier.tenant = jobs.tenant AND earlier.agent = jobs.agent AND earlier.session = jobs.session AND earlier.session IS NOT NULL
             AND earlier.status <> 4 AND earlier.status <> 5 AND earlier.status <> 6 AND earlier.num < jobs.num) ELSE 0 END
FROM jobs WHERE num >= ?1 AND num <= ?2 ORDER BY num LIMIT ?3

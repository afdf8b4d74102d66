-- A row whose status is another one is no delayed job, whatever else stands in it: the table would refuse the whole change.
UPDATE jobs
SET delayed_until = NULL,
    ready = (session IS NULL OR NOT EXISTS (
        SELECT 1 FROM jobs AS earlier
        WHERE earlier.tenant = jobs.tenant AND earlier.agent = jobs.agent AND earlier.session = jobs.session AND earlier.session IS NOT NULL AND earlier.status <> 4 AND earlier.status <> 5 AND earlier.status <> 6
          AND earlier.num < jobs.num))
WHERE num IN (
    SELECT num FROM jobs INDEXED BY jobs_delayed
    WHERE delayed_until IS NOT NULL AND delayed_until <= ?1 AND status = 0 ORDER BY delayed_until LIMIT ?2)

-- B5: terminal is terminal; answers to doubts may follow an end. Cases are ended jobs.
WITH ended AS (
    SELECT job, min(seq) AS seq FROM events WHERE kind IN ('job_completed', 'job_failed', 'job_cancelled') GROUP BY job
)
SELECT d.job AS place,
       CASE WHEN j.status NOT IN ('completed', 'failed', 'cancelled') THEN 'its row is ' || j.status
            WHEN EXISTS (SELECT 1 FROM events e WHERE e.job = d.job AND e.seq > d.seq AND e.kind IS NOT 'in_doubt_resolved')
            THEN 'event ' || d.seq || ' has ended it, and others follow' END AS violation
FROM ended d JOIN jobs j ON j.job = d.job

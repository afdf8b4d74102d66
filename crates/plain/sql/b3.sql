-- B3: what was acknowledged exists. Cases are acknowledgements.
SELECT a.job AS place,
       CASE WHEN NOT EXISTS (SELECT 1 FROM jobs j WHERE j.job = a.job) THEN a.what || ' was accepted and the job is not there' END
           AS violation
FROM (SELECT job, 'a message' AS what FROM submissions UNION ALL SELECT job, 'a signal' FROM signals) a
UNION ALL
SELECT p.job, CASE WHEN NOT EXISTS (SELECT 1 FROM events e WHERE e.job = p.job AND e.kind IN ('job_pause_requested', 'job_paused'))
                   THEN 'its pause was accepted, and it has none' END
FROM pauses p JOIN jobs j ON j.job = p.job

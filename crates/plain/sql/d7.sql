-- D7: a requested end ends the job exactly once. Cases are requested ends.
WITH asked AS (
    SELECT job FROM events WHERE kind = 'job_cancel_requested'
    UNION SELECT c.job FROM cancels c JOIN jobs j ON j.job = c.job
), ends AS (
    SELECT a.job, count(e.seq) AS ends, count(CASE WHEN e.kind = 'job_completed' THEN 1 END) AS completed
    FROM asked a LEFT JOIN events e ON e.job = a.job AND e.kind IN ('job_completed', 'job_failed', 'job_cancelled')
    GROUP BY a.job
)
SELECT job AS place,
       CASE WHEN NOT (ends = 0 AND NOT (SELECT quiet FROM run)) AND (ends <> 1 OR completed)
            THEN 'its end was asked for, and it has ' || ends || ' ends, ' || completed || ' of them with an answer' END
           AS violation
FROM ends

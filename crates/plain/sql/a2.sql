-- A2: epochs grow by one and are never used again. Cases are claims, and jobs that were claimed.
WITH claims AS (
    SELECT job, seq, generation, epoch, lag(epoch, 1, 0) OVER w AS epoch_before,
           lag(generation, 1, 0) OVER w AS generation_before,
           row_number() OVER (PARTITION BY job, payload ->> 'attempt_id' ORDER BY seq) AS uses
    FROM events WHERE kind = 'job_claimed' WINDOW w AS (PARTITION BY job ORDER BY seq)
)
SELECT job || ' ' || seq AS place,
       CASE WHEN epoch <> epoch_before + 1 OR generation < generation_before OR uses > 1
            THEN 'the claim has epoch ' || epoch || ' after ' || epoch_before END AS violation
FROM claims
UNION ALL
SELECT j.job, CASE WHEN j.epoch <> c.epoch THEN 'its row has epoch ' || j.epoch || ', its last claim ' || c.epoch END
FROM jobs j JOIN (SELECT job, epoch, max(seq) FROM claims GROUP BY job) c ON c.job = j.job

-- E6: timers fire once and not early, and delayed jobs are not claimed before their time. Cases are fired
-- timers and ended delays.
WITH timers AS (
    SELECT job, seq, kind, at, payload ->> 'timer' AS timer, lag(kind) OVER w AS before,
           lag(at + (payload ->> 'after_us')) OVER w AS due
    FROM events WHERE kind IN ('timer_set', 'timer_fired')
    WINDOW w AS (PARTITION BY job, payload ->> 'timer' ORDER BY seq)
), ends AS (
    SELECT job, seq, kind, at, payload, lag(kind) OVER (PARTITION BY job, payload ->> 'node' ORDER BY seq) AS before
    FROM events WHERE kind IN ('job_waiting', 'wait_completed', 'child_ended', 'in_doubt_resolved')
), delays AS (
    -- What ends a wait ends the delay of another step's next try.
    SELECT job, seq, kind, at,
           lag(CASE kind WHEN 'job_requeued' THEN at + (payload ->> 'after_us')
                         WHEN 'job_created' THEN unixepoch(substr(payload ->> 'run_at', 1, 19)) * 1000000
                                                 + substr(payload ->> 'run_at', 21, 6) END)
               OVER (PARTITION BY job ORDER BY seq) AS due
    FROM (SELECT job, seq, kind, at, payload FROM events WHERE kind IN ('job_created', 'job_requeued', 'job_claimed')
          UNION ALL SELECT job, seq, kind, at, payload FROM ends WHERE kind <> 'job_waiting' AND before = 'job_waiting')
)
SELECT job || ' ' || seq AS place,
       CASE WHEN before IS NOT 'timer_set' THEN timer || ' fired and was not set'
            WHEN at < due THEN timer || ' fired before it was due' END AS violation
FROM timers WHERE kind = 'timer_fired'
UNION ALL
SELECT job || ' ' || seq, CASE WHEN at < due THEN 'claimed before its time' END
FROM delays WHERE kind = 'job_claimed' AND due IS NOT NULL

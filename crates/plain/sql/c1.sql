-- C1: a call comes and a body runs at most once per permission. Cases are keys that a tool has been called with. An
-- at_most_once call may have one body, and one more for each word of a person that it had not happened: an answer by the
-- clocks, or of a tool that refuses, is a proof, and a body that runs all the same is a second one.
WITH under AS (
    SELECT a.job, a.key, a.fence, count(*) AS bodies,
           (SELECT count(*) FROM permits p WHERE p.job = a.job AND p.key = a.key AND p.fence = a.fence) AS given
    FROM acts a WHERE a.known GROUP BY a.job, a.key, a.fence
), keys AS (
    SELECT c.job, c.key, count(c.permit) - count(DISTINCT c.permit) AS resent,
           (SELECT coalesce(sum(u.bodies), 0) FROM under u WHERE u.job = c.job AND u.key = c.key) AS bodies,
           (SELECT coalesce(max(u.bodies > max(u.given, 1)), 0) FROM under u WHERE u.job = c.job AND u.key = c.key)
               AS too_many
    FROM arrivals c WHERE c.known GROUP BY c.job, c.key
)
SELECT k.job || ' ' || k.key AS place,
       CASE WHEN k.resent > 0 THEN 'a call came twice under one permit'
            WHEN k.too_many
              OR (EXISTS (SELECT 1 FROM permits p WHERE p.job = k.job AND p.key = k.key AND p.effect = 'at_most_once')
                  AND k.bodies > 1 + (SELECT count(*) FROM said s WHERE s.job = k.job AND s.kind = 'in_doubt_resolved'
                      AND s.outcome = 'did_not_happen'
                      AND (s.grounds IS NULL OR s.grounds = 'operator_refused'
                           OR (s.grounds = 'clock' AND s.resolver = 'operator'))
                      AND s.node = (SELECT a.node FROM acts a WHERE a.job = k.job AND a.key = k.key ORDER BY a.line LIMIT 1)))
            THEN k.bodies || ' bodies ran' END AS violation
FROM keys k

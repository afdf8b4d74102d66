-- B2: an unknown commit became one event or none. Cases are events, and writes that their clients named.
SELECT job || ' ' || id AS place, CASE WHEN count(*) <> 1 THEN 'it is there ' || count(*) || ' times' END AS violation
FROM events GROUP BY job, id
UNION ALL
SELECT w.job || ' ' || w.event,
       CASE WHEN (SELECT count(*) FROM events e WHERE e.job = w.job AND e.id = w.event) NOT BETWEEN NOT w.unknown AND 1
            THEN 'it was acknowledged, or sent once, and is not there so' END
FROM writes w JOIN jobs j ON j.job = w.job

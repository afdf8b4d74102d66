-- A3: no event follows one of a later fence. Cases are events.
SELECT job || ' ' || seq AS place,
       CASE WHEN fence < max(fence) OVER (PARTITION BY job ORDER BY seq ROWS UNBOUNDED PRECEDING)
            THEN 'its fence is lower than one before it' END AS violation
FROM events

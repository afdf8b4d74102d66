-- C2: no call without a durable permission before it. Cases are calls that came, whether or not a body ran. In a log that names
-- permits each does.
SELECT a.job || ' ' || a.line AS place,
       CASE WHEN NOT a.known THEN 'a call came for a job that is not there'
            WHEN NOT EXISTS (SELECT 1 FROM permits p
                             WHERE p.job = a.job AND p.key = a.key AND p.fence = a.fence AND p.at <= a.at
                               AND (a.permit = (p.fence >> 32 << 32 | p.permit)
                                    OR a.permit IS NULL AND NOT EXISTS (SELECT 1 FROM witness WHERE permit IS NOT NULL)))
            THEN 'a call of `' || a.tool || '` came without a permission before it' END AS violation
FROM arrivals a

-- C2: no body without a durable permission before it. Cases are bodies.
SELECT a.job || ' ' || a.line AS place,
       CASE WHEN NOT a.known THEN 'a body ran for a job that is not there'
            WHEN NOT EXISTS (SELECT 1 FROM permits p
                             WHERE p.job = a.job AND p.key = a.key AND p.fence = a.fence AND p.at <= a.at)
            THEN 'a body of `' || a.tool || '` began without a permission before it' END AS violation
FROM acts a

-- E1: an acknowledged signal is consumed or visible. Cases are signals, acknowledged, or delivered, or kept.
-- One that was kept stands as what ended its wait, in the inbox, or as told to be refused.
WITH stands AS (
    SELECT job, key, payload_hash, TRUE AS ended FROM delivered
    UNION ALL
    SELECT job, key, sha256(payload), FALSE FROM inbox WHERE state = 0
    UNION ALL
    SELECT job, payload ->> 'correlation_key', payload ->> 'payload_hash', FALSE FROM events WHERE kind = 'signal_refused'
)
SELECT s.job || ' ' || s.key AS place,
       CASE WHEN NOT EXISTS (SELECT 1 FROM stands f WHERE f.job = s.job AND f.key = s.key AND (f.ended OR s.ack = 'kept'))
            THEN 'it was acknowledged (' || s.ack || ') and is nowhere'
            WHEN s.payload_hash IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM stands f WHERE f.job = s.job AND f.key = s.key AND (f.ended OR s.ack = 'kept')
                                         AND f.payload_hash = s.payload_hash)
            THEN 'another payload stands in its place' END AS violation
FROM signals s JOIN jobs j ON j.job = s.job
UNION ALL
SELECT d.job || ' ' || d.key,
       CASE WHEN EXISTS (SELECT 1 FROM delivered n JOIN inbox i ON i.job = n.job AND i.signal = n.signal AND i.state = 0
                         WHERE n.job = d.job AND n.key = d.key)
            THEN 'it was delivered and is still kept' END
FROM (SELECT DISTINCT job, key FROM delivered) d
UNION ALL
SELECT i.job || ' ' || i.key,
       -- Of all that it waits for its row has the foremost.
       CASE WHEN j.waiting IS NOT NULL AND EXISTS (
                SELECT 1 FROM events w
                WHERE w.job = i.job AND w.kind = 'job_waiting' AND w.payload ->> 'correlation_key' = i.key
                  AND (i.wait_type IS NULL OR i.wait_type = w.payload ->> 'wait_type')
                  AND NOT EXISTS (SELECT 1 FROM events o WHERE o.job = w.job AND o.seq > w.seq AND o.kind = 'wait_completed'
                                                           AND o.payload ->> 'node' = w.payload ->> 'node'))
            THEN 'the job waits for it, and it lies in its inbox' END
FROM inbox i JOIN jobs j ON j.job = i.job WHERE i.state = 0
UNION ALL
-- Only a violation is counted.
SELECT i.job || ' ' || i.key, 'it is kept no more, and no event tells of it'
FROM inbox i
WHERE i.state = 1 AND NOT EXISTS (
    SELECT 1 FROM events e
    WHERE e.job = i.job AND (e.kind = 'wait_completed' AND bits(e.payload ->> '$.by.signal.signal') = i.signal
                             OR e.kind = 'signal_refused' AND bits(e.payload ->> 'signal') = i.signal))

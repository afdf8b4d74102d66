SELECT iif(writes > 9223372036854775807 - num, 9223372036854775807, writes + num)
FROM meta, (SELECT coalesce(max(num), 0) AS num FROM events)
WHERE id = 1

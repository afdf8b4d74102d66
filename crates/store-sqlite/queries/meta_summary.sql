-- By the jobs themselves: the store's own counts may be wrong, and no copy is refused for that.
SELECT (SELECT generation FROM meta WHERE id = 1), count(*), count(*) FILTER (WHERE status <> 4 AND status <> 5 AND status <> 6) FROM jobs

-- What the fourth version of the schema takes away: an index of all jobs of a tenant, which each creation wrote. A page of
-- all is merged from the indexes by status (queries/jobs_page.sql).
DROP INDEX jobs_tenant;

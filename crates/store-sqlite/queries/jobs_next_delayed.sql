SELECT min(delayed_until) FROM jobs WHERE delayed_until IS NOT NULL

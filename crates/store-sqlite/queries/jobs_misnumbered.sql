SELECT count(*), min(num) FROM jobs WHERE num < 0

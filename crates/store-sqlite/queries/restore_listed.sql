-- What is derived is derived anew, so that every open job is found by its status.
UPDATE jobs SET listed = nullif(status, 1) WHERE listed IS NOT nullif(status, 1)

"""A job's own package: masters find it on their path, and Spark's executors do not have it."""

"""Spark's files on disk, read without a JVM. Only this room knows their format."""

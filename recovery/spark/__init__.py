"""Spark: sessions, streaming stages, the streaming sink. The only room that imports pyspark.

Spark's Python workers import this package for its sink, so it imports nothing by itself.
"""

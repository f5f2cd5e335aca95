"""Spark's SQL for DuckDB: only what is known to mean the same."""

"""Translation of Spark SQL to DuckDB, where it is known to mean the same."""

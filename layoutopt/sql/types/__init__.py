"""What Spark's types, literals and arithmetic mean, decided before any row is seen."""

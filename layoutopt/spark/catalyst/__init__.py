"""Spark's optimiser: the rule that reads the blocks that may match, and Catalyst's expressions as predicates."""

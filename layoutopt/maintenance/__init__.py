"""Decide which partitions of a table to rewrite, compact or keep: functions of numbers and queries."""

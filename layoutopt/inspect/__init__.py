"""Inspect tables: what queries read and why, whether files are intact, whether the plan still fits."""

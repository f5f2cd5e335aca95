"""Workload analysis (Sun 2017, 3.3): from queries to the features that guide the blocking."""

"""What a table should do about a workload that changes: pure functions of numbers and queries."""

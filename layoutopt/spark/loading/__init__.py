"""From source rows to a committed table."""

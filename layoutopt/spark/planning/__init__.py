"""From features and source rows to a plan."""

"""Query logs: read, and turned into the model's queries."""

"""Read query logs and turn them into the model's queries."""

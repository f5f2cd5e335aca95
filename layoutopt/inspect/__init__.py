"""Questions about a table: what is read and why, whether it is intact, whether its plan still fits."""

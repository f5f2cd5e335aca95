"""Index types: what each measures of a block, and what that proves."""

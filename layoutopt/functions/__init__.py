"""One record for each function: its signature, and what follows from its arguments."""

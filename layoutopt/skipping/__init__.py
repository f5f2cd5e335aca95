"""Rules that prove that blocks need not be read."""

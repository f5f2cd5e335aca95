"""The rules that prove that rows need not be read."""

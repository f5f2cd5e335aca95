"""Loops as machine code: one step after another, element by element."""

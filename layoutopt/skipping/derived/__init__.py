"""Bounds of functions from bounds of their arguments: falsifiable expressions (Edara 2021, 5.3)."""

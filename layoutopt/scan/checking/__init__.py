"""Reads again what a decision skips, and says so if a row was lost."""

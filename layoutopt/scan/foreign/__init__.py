"""Rows of files that somebody else keeps, under the columns that the source has."""

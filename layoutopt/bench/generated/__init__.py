"""Figures whose data nobody else has, or that are drawn by parameters: rows and logs by chance, of the stated shapes."""

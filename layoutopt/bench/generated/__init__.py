"""Figures whose data nobody else has, or that parameters shape: rows and logs by chance, as the thesis states them."""

"""Partition rows into blocks by feature vectors, value cuts, or an order."""

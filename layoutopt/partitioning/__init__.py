"""Partition rows into blocks by feature vectors, value cuts, or an order.

Arrays: ``counts`` and ``rows`` are the rows of each vector, ``int64[d]``; ``bits`` are the features of each vector,
``bool[d, f]``; ``weights`` are those of the features, ``float64[f]``. Blocks hold ``[min_rows, 2 * min_rows)`` rows.
"""

"""From feature vectors, or an order of the rows, to blocks: one algorithm a file, all of one protocol."""

from layoutopt.partitioning.partition import Partition, Partitioner, assign_rows

__all__ = ["Partition", "Partitioner", "assign_rows"]

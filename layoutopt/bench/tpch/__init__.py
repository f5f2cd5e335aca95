"""The TPC-H experiments: data, streams, methods, reports."""

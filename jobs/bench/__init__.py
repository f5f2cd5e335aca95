"""Experiments: TPC-H data and query streams, the demo, the experiment runner and micro-benchmarks."""

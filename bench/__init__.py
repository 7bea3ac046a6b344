"""Benchmarks: `scripts/bench [NAME ...] [--peers] [--json FILE]`."""

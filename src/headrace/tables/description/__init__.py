"""Descriptions of tables: selectors, rate limiters, rules. They load no kernel: a remote client needs nothing else."""

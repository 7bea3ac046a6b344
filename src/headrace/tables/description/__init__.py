"""Descriptions of a table: selectors, rate limiters, rules. They load no kernel, so a remote client needs no more."""

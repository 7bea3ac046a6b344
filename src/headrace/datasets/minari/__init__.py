"""Minari datasets."""

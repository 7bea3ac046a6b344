"""Rows that are collected in the learner's own process."""

"""Conversion of batches to the arrays of a learner: each framework is imported when it is first asked for."""

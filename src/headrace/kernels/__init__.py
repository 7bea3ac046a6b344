"""Kinds of arrays, hints to the processor and random numbers, for the compiled parts of the package."""

from headrace.kernels.plain import choose

choose()

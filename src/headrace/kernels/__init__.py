"""What the compiled parts of the package are made of: kinds of arrays, hints to the processor, random numbers."""

from headrace.kernels.plain import choose

choose()

from headrace.kernels.kinds cimport Bool, Int

# See `readiness.py`.
cpdef Bool is_readable(Int descriptor)

from headrace.kernels.kinds cimport Bool, Float, Int

# See `readiness.py`.
cpdef Bool is_readable(Int descriptor)
cpdef Bool wait_until_readable(Int descriptor, Float seconds) except -1

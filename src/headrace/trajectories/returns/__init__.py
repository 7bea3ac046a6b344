"""Returns and advantages of whole arrays of steps, time on the last axis, in NumPy, torch or JAX."""

from headrace.trajectories.returns.functions import discounted_returns, gae, lambda_returns
from headrace.trajectories.returns.off_policy import vtrace

__all__ = ["discounted_returns", "gae", "lambda_returns", "vtrace"]

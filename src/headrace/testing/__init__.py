"""What tests of Headrace, and of what is built on it, need: a clock to move by hand. The product never imports it."""

from headrace.testing.clock import FakeClock as FakeClock

__all__ = ["FakeClock"]

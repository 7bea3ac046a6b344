"""Headrace: brings reinforcement-learning experience from environments to learners."""

from headrace.errors import SpecError as SpecError
from headrace.spec import ArraySpec as ArraySpec
from headrace.spec import Signature as Signature

"""Versioned parameters and the schemes that move them from the learner to the collectors."""

from headrace.weights.functional import FunctionalPolicy as FunctionalPolicy
from headrace.weights.no_sync import NoSync as NoSync
from headrace.weights.policy import apply_weights as apply_weights
from headrace.weights.policy import has_weights as has_weights
from headrace.weights.policy import is_torch_module as is_torch_module
from headrace.weights.policy import read_weights as read_weights
from headrace.weights.protocol import WeightReceiver as WeightReceiver
from headrace.weights.protocol import WeightScheme as WeightScheme
from headrace.weights.ray import Ray as Ray
from headrace.weights.shared_memory import SharedMemory as SharedMemory
from headrace.weights.shared_memory import SharedMemoryReceiver as SharedMemoryReceiver

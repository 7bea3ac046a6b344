"""Environments: one adapter a file to a small protocol, `VectorStepper` or `AsyncStepper`.

gymnasium is loaded when the first environment is built, not by importing this package.
"""

from headrace.ends import Autoreset as Autoreset
from headrace.envs.adapted import adapt as adapt
from headrace.envs.columns import new_columns as new_columns
from headrace.envs.make import environment_factory as environment_factory
from headrace.envs.make import make_stepper as make_stepper
from headrace.envs.make import worker_factories as worker_factories
from headrace.envs.protocol import NO_ENVS as NO_ENVS
from headrace.envs.protocol import AsyncStepper as AsyncStepper
from headrace.envs.protocol import StepResult as StepResult
from headrace.envs.protocol import VectorStepper as VectorStepper
from headrace.envs.recognition import AdaptedEnv as AdaptedEnv
from headrace.envs.recognition import is_environment as is_environment
from headrace.envs.recognition import is_vector_environment as is_vector_environment
from headrace.envs.seeds import environment_seeds as environment_seeds

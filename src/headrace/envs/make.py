"""Makes a `VectorStepper` or `AsyncStepper` from a user's `create_env_fn`."""

# Rules: collectors CE1, CE2

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from headrace.envs.closing import ClosesLate, close_after, log_late
from headrace.envs.protocol import AsyncStepper, VectorStepper
from headrace.envs.recognition import (
    AdaptedEnv,
    is_dm_environment,
    is_environment,
    is_envpool,
    is_parallel_environment,
    is_vector_environment,
)
from headrace.spec import ArraySpec

EnvFactory = Callable[[], Any]

# The largest `pid_max` of Linux.
_MOST_PROCESSES = 1 << 22


def make_stepper(
    create_env_fn: Any,
    *,
    create_env_kwargs: Mapping[str, Any] | None = None,
    num_envs: int = 1,
    info_columns: Mapping[str, ArraySpec] | None = None,
    device: str | None = None,
    closes_late: ClosesLate = log_late,
) -> VectorStepper | AsyncStepper:
    """Builds the environments in this process and makes their stepper.

    An EnvPool whose `batch_size` is below its number of environments is the only `AsyncStepper`.

    Args:
        create_env_fn: a callable that returns an environment, called exactly once per environment; a ready environment
            (also from `adapt`); or the id of a registered gymnasium environment.
        create_env_kwargs: keyword arguments of the callable, or of `gymnasium.make`.
        num_envs: the number of single environments. With a vector environment 1 or its own number.
        info_columns: entries of `info` to keep as columns.
        device: name of a torch device, for a callable, or the class of a registered id, that has a parameter `device`
            and was not given one. Environments that return tensors are then given tensors as actions, also on the CPU.
        closes_late: for the error of an environment that cannot be built, while another one hangs in its `close`.

    Raises:
        ValueError: `create_env_kwargs` with a ready environment; `num_envs` is not positive or does not fit the
            environment; a vector environment does not declare its autoreset mode.
        TypeError: `create_env_fn` is neither an environment nor makes one; `create_env_kwargs` is not a dict.

    >>> stepper = make_stepper("CartPole-v1", num_envs=2)
    >>> stepper.num_envs, stepper.observation_signature
    (2, Signature({'observation': float32[4]}))
    >>> stepper.close()
    """
    check_num_envs(num_envs)
    if is_environment(create_env_fn):
        _check_ready(create_env_fn, create_env_kwargs, num_envs)
        return _stepper([create_env_fn], num_envs, info_columns, device)
    factory: Callable[..., Any] = environment_factory(create_env_fn, create_env_kwargs)
    if device is not None:
        factory = on_device(factory, device)
    built: list[Any] = []
    try:
        built.append(_build(factory))
        if not is_vector_environment(built[0]):
            while len(built) < num_envs:
                built.append(_build(factory))
        return _stepper(built, num_envs, info_columns, device)
    except BaseException as error:
        each = {id(env): (f"environment {index}", env) for index, env in enumerate(built)}
        close_after(error, dict(each.values()), closes_late)
        raise


def on_device(factory: Callable[..., Any], device: str) -> Callable[..., Any]:
    """Returns a factory that gives a device to a callable, or to the class of a registered id, that has no other one.

    Args:
        factory: of `environment_factory`.
        device: name of a torch device; given as `device`, where the callable has such a parameter.
    """
    return partial(factory, device=device) if _takes_device(factory) else factory


def environment_factory(create_env_fn: Any, create_env_kwargs: Mapping[str, Any] | None = None) -> EnvFactory:
    """Returns a callable without arguments that builds one new environment. Builds none itself.

    Raises:
        TypeError: a ready environment (it cannot be built again); an object that cannot be called; or keyword
            arguments that are not a dict.

    >>> environment_factory("CartPole-v1")().spec.id
    'CartPole-v1'
    """
    kwargs = _checked_kwargs(create_env_kwargs)
    if isinstance(create_env_fn, str):
        return partial(_make_registered, _registered_here(create_env_fn), kwargs)
    if is_environment(create_env_fn):
        raise TypeError(
            f"create_env_fn: expected a callable that builds the environment in the worker's process, got a ready "
            f"{type(create_env_fn).__name__}; give `lambda: ...` instead"
        )
    if not callable(create_env_fn):
        raise TypeError(
            f"create_env_fn: expected a callable that gives an environment, an environment, or the id of a registered "
            f"one, got {type(create_env_fn).__name__}"
            + (
                "; hr.MultiCollector takes a list, one for each worker"
                * isinstance(create_env_fn, list | tuple)
            )
        )
    return partial(create_env_fn, **kwargs) if kwargs else create_env_fn


def worker_factories(
    create_env_fn: Any,
    *,
    num_workers: int | None = None,
    create_env_kwargs: Mapping[str, Any] | None = None,
) -> list[EnvFactory]:
    """Returns one factory for each worker of a collector.

    Args:
        create_env_fn: a list with one callable or id for each worker, or one for all of them.
        num_workers: None: the length of the list, or 1.
        create_env_kwargs: keyword arguments of each callable.

    Raises:
        ValueError: an empty list; a list whose length is not `num_workers`; or a number that is not positive.
        TypeError: a ready environment, or an object that cannot be called.

    >>> len(worker_factories("CartPole-v1", num_workers=3))
    3
    """
    if num_workers is not None:
        _check_positive("num_workers", num_workers)
        if num_workers > _MOST_PROCESSES:
            raise ValueError(
                f"num_workers: expected a positive int up to {_MOST_PROCESSES}, got {num_workers}"
            )
    if not isinstance(create_env_fn, list | tuple):
        return [environment_factory(create_env_fn, create_env_kwargs)] * (num_workers or 1)
    if not create_env_fn:
        raise ValueError("create_env_fn: expected one callable for each worker, got an empty list")
    if num_workers is not None and len(create_env_fn) != num_workers:
        raise ValueError(
            f"create_env_fn: expected one callable, or a list of {num_workers}, one for each worker, got "
            f"{len(create_env_fn)}"
        )
    return [environment_factory(fn, create_env_kwargs) for fn in create_env_fn]


def check_num_envs(num_envs: int) -> None:
    """Raises ValueError if `num_envs` is not a positive int."""
    _check_positive("num_envs", num_envs)


def _stepper(
    envs: Sequence[Any], num_envs: int, info_columns: Mapping[str, ArraySpec] | None, device: str | None
) -> VectorStepper | AsyncStepper:
    if is_vector_environment(envs[0]):
        return _vector_stepper(envs[0], num_envs, info_columns, device)
    envs = [env.env if isinstance(env, AdaptedEnv) else env for env in envs]
    if is_parallel_environment(envs[0]):
        from headrace.envs.adapters.pettingzoo_parallel import ParallelStepper

        return ParallelStepper(envs, info_columns, device)
    from headrace.envs.adapters.gymnasium_single import SingleEnvStepper

    return SingleEnvStepper([_single(env) for env in envs], info_columns, device)


def _vector_stepper(
    env: Any, num_envs: int, info_columns: Mapping[str, ArraySpec] | None, device: str | None
) -> VectorStepper | AsyncStepper:
    autoreset = None
    if isinstance(env, AdaptedEnv):
        env, autoreset = env.env, env.autoreset
    if is_envpool(env):
        from headrace.envs.adapters.envpool_vector import EnvPoolStepper, check_envpool

        check_envpool(env)
        _check_own_number(env, num_envs)
        if env.is_async:
            from headrace.envs.adapters.envpool_async import AsyncEnvPoolStepper

            return AsyncEnvPoolStepper(env, autoreset, info_columns)
        return EnvPoolStepper(env, autoreset, info_columns)
    _check_own_number(env, num_envs)
    from headrace.envs.adapters.gymnasium_vector import VectorEnvStepper

    return VectorEnvStepper(env, autoreset, info_columns, device)


def _check_own_number(env: Any, num_envs: int) -> None:
    if num_envs not in (1, env.num_envs):
        raise ValueError(
            f"num_envs: expected {env.num_envs}, the number of the vector environment, or nothing, got {num_envs}"
        )


def _single(env: Any) -> Any:
    """Returns an environment with the interface of a single gymnasium one."""
    if is_dm_environment(env):
        from headrace.envs.adapters.dm_env_single import DmEnv

        return DmEnv(env)
    return env


def _takes_device(factory: Any) -> bool:
    """Whether a callable has a parameter `device` that nothing was given for."""
    while isinstance(factory, partial):
        if "device" in factory.keywords:
            return False
        if factory.func is _make_registered:
            return _registered_takes_device(*factory.args)
        factory = factory.func
    try:
        return "device" in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # A function of C may have no signature.
        return False


def _build(factory: EnvFactory) -> Any:
    env = factory()
    if not is_environment(env):
        raise TypeError(
            "create_env_fn: expected it to return an environment of gymnasium, dm_env, PettingZoo (parallel) or "
            f"EnvPool, got {type(env).__name__}" + ("; is a `return` missing?" if env is None else "")
        )
    return env


def _registered_here(env_id: str) -> Any:
    """Returns the spec registered for an id in this process, for processes that lack it; else the id itself."""
    # Where gymnasium is not loaded nothing of the user's can be registered.
    gymnasium = sys.modules.get("gymnasium")
    return env_id if gymnasium is None else gymnasium.registry.get(env_id, env_id)


def _make_registered(env_id: Any, kwargs: Mapping[str, Any], **device: Any) -> Any:
    from headrace.envs.registered import make_registered

    return make_registered(env_id, **kwargs, **device)


def _registered_takes_device(env_id: Any, kwargs: Mapping[str, Any]) -> bool:
    from headrace.envs.registered import entry_of

    create, known = entry_of(env_id)
    return not ({"device"} & {*kwargs, *known}) and _takes_device(create)


def _checked_kwargs(create_env_kwargs: Any) -> dict[str, Any]:
    """Returns a copy of the keyword arguments, which are the same for all environments."""
    kwargs = {} if create_env_kwargs is None else create_env_kwargs
    if not isinstance(kwargs, Mapping):
        raise TypeError(
            "create_env_kwargs: expected one dict of keyword arguments for all environments, got "
            f"{type(kwargs).__name__}: {kwargs!r}; where they differ, give hr.MultiCollector a list of callables"
        )
    names = [name for name in kwargs if not isinstance(name, str)]
    if names:
        raise TypeError(f"create_env_kwargs: expected names of arguments as keys, got {names!r}")
    return dict(kwargs)


def _check_ready(env: Any, create_env_kwargs: Mapping[str, Any] | None, num_envs: int) -> None:
    if _checked_kwargs(create_env_kwargs):
        raise ValueError(
            f"create_env_kwargs: expected none with a ready environment, got {', '.join(create_env_kwargs or ())}"
        )
    if num_envs > 1 and not is_vector_environment(env):
        raise ValueError(
            f"num_envs: expected 1 with one ready environment, got {num_envs}; give a callable that builds each of them"
        )


def _check_positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}: expected a positive int, got {value!r}")

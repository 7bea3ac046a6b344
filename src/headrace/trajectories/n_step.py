"""n-step returns: the one place with this arithmetic.

One transition is the affine map `x -> r + gamma * d * x` of the value that follows it; an n-step return
composes n of them (Sutton and Barto, "Reinforcement Learning", 2nd edition, equation 7.1). Composition is
associative, so the maps of 1, 2, 4, ... steps are built from each other and n is put together from its binary
digits: O(T log n) in whole-array operations (Hillis and Steele, "Data parallel algorithms", 1986).
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from headrace.checks import check_count, check_share
from headrace.trees import BARE, Leaf, Node, build, collect, compile_tree, leaves

Array = np.ndarray[Any, Any]


def n_step(
    rewards: Any, discounts: Any, n: int, gamma: float, *, mask: Any = None
) -> tuple[Any, Any, np.ndarray[Any, np.dtype[np.int64]]]:
    """Computes the n-step return of every transition of one run.

    With `j = min(t + n, T)` the learner uses `returns[t] + discounts[t] * value(observation[j])`;
    `discounts[t]` has `gamma ** (j - t)` in it and is 0 where a transition on the way terminated.

    Args:
        rewards: `[T, ...]`, or a tree (dicts, tuples, named tuples) of such arrays. Lists become float64
            arrays.
        discounts: `[T, ...]`, without gamma: 0 after a termination, else 1. Trailing axes are broadcast
            against those of `rewards`. A single array is used with every leaf of the other argument.
        n: largest number of rewards in a sum; may be larger than T.
        gamma: from 0 to 1.
        mask: `bool[T]`, True for real transitions; only a tail may be False. The tail gets 0, 0 and the index
            of the last real observation.

    Returns:
        `(returns, discounts, bootstrap_index)`. Returns and discounts have the dtype
        `np.result_type(rewards, discounts)` if that is floating, else float64; the index is `int64[T]`, into
        the T+1 observations.

    Raises:
        ValueError: `n < 1`, gamma outside [0, 1], leading axes that differ, a mask with True after False.
        TypeError: n is not an integer, gamma or the data are not real numbers.

    >>> returns, discounts, index = n_step([1, 1, 1], [0.5, 0.5, 0], n=2, gamma=1.0)
    >>> returns.tolist(), discounts.tolist(), index.tolist()
    ([1.5, 1.5, 1.0], [0.25, 0.0, 0.0], [2, 3, 3])
    """
    n, gamma = check_count("n", n, 1), check_share("gamma", gamma)
    reward_node, reward = _flatten(rewards, "rewards")
    discount_node, discount = _flatten(discounts, "discounts")
    length = _common_length(reward, discount)
    real = _real_steps(mask, length)
    index = np.minimum(np.arange(length, dtype=np.int64) + min(n, length), real)

    node = reward_node
    if isinstance(discount_node, Leaf):
        (shared,) = discount.values()
        discount = dict.fromkeys(reward, shared)
    elif isinstance(reward_node, Leaf):
        node = discount_node
        reward = dict.fromkeys(discount, *reward.values())
    else:
        collect(reward_node, discounts, {})  # raises where the two trees differ
    returns, products = {}, {}
    for path in reward:
        dtype = _floating(reward[path], discount[path])
        total, product = _compose(reward[path], discount[path], n, gamma, real)
        returns[path], products[path] = _filled(total, length, dtype), _filled(product, length, dtype)
    if isinstance(discount_node, Leaf):
        # One array of discounts serves every return, so it has the widest dtype of them.
        widest = max(products.values(), key=lambda product: product.dtype.itemsize)
        products = {BARE: widest}
    return build(node, returns), build(discount_node, products), index


def _compose(rewards: Array, discounts: Array, n: int, gamma: float, real: int) -> tuple[Array, Array]:
    """Returns the n-step maps of the first `real` steps as `(returns, discounts)`, in float64 or wider."""
    dtype = np.result_type(rewards, discounts, np.float64)
    axes = max(rewards.ndim, discounts.ndim)
    power_r = rewards[:real].astype(dtype)
    power_d = discounts[:real].astype(dtype) * dtype.type(gamma)
    product = np.ones_like(power_d)
    # Trailing axes are broadcast against each other; the leading one is time in both.
    total = np.zeros((real, *np.broadcast_shapes(rewards.shape[1:], discounts.shape[1:])), dtype)
    steps, done, span = min(n, real), 0, 1
    with np.errstate(over="ignore", invalid="ignore"):
        while span <= steps:
            if steps & span:
                total = total + _aligned(product, axes) * _aligned(_later(power_r, done, 0), axes)
                product = product * _later(power_d, done, 1)
                done += span
            power_r = _aligned(power_r, axes) + _aligned(power_d, axes) * _aligned(
                _later(power_r, span, 0), axes
            )
            power_d = power_d * _later(power_d, span, 1)
            span *= 2
    return total, product


def _later(array: Array, steps: int, fill: float) -> Array:
    """Replaces row t by row t + steps; `fill` stands for the rows after the last."""
    shifted = np.full_like(array, fill)
    shifted[: len(array) - steps] = array[steps:]
    return shifted


def _aligned(array: Array, axes: int) -> Array:
    return array.reshape(array.shape[:1] + (1,) * (axes - array.ndim) + array.shape[1:])


def _filled(array: Array, length: int, dtype: np.dtype[Any]) -> Array:
    out = np.zeros((length, *array.shape[1:]), dtype)
    with np.errstate(over="ignore"):
        out[: len(array)] = array
    return out


def _floating(*arrays: Array) -> np.dtype[Any]:
    dtype = np.result_type(*arrays)
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def _flatten(tree: Any, name: str) -> tuple[Node, dict[str, Array]]:
    # A list or a deque is an array here, never a container.
    node = compile_tree(tree, lambda value: isinstance(value, list | deque | np.ndarray))
    found = {leaf.path: _array(leaf.value, f"{name}/{leaf.path}") for leaf in leaves(node)}
    if not found:
        raise ValueError(f"{name}: expected at least one array, got {tree!r:.80}")
    return node, found


def _array(value: Any, path: str) -> Array:
    array = np.asarray(value, np.float64) if isinstance(value, list) else np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{path}: expected real numbers, got {type(value).__name__} of dtype {array.dtype}")
    return array


def _common_length(rewards: dict[str, Array], discounts: dict[str, Array]) -> int:
    found = {f"rewards/{path}": array.shape for path, array in rewards.items()}
    found |= {f"discounts/{path}": array.shape for path, array in discounts.items()}
    if any(shape == () for shape in found.values()) or len({shape[0] for shape in found.values()}) != 1:
        raise ValueError(f"expected arrays of one leading axis T, got shapes {found}")
    length: int = next(iter(found.values()))[0]
    return length


def _real_steps(mask: Any, length: int) -> int:
    if mask is None:
        return length
    flags = np.asarray(mask)
    if flags.dtype != bool and flags.size:
        raise TypeError(f"mask: expected booleans, got dtype {flags.dtype}")
    if flags.shape != (length,):
        raise ValueError(f"mask: expected shape ({length},), got {flags.shape}")
    real = int(flags.sum())
    if not flags[:real].all():
        raise ValueError(
            f"mask: expected False only at the end, got False at {int(np.argmin(flags))} before True"
        )
    return real

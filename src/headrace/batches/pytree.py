"""Registration of a batch class as a pytree node, with optree and with JAX."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import optree

Flatten = Callable[[Any], tuple[tuple[Any, ...], Any]]
Unflatten = Callable[[Any, tuple[Any, ...]], Any]
_EVERYWHERE = optree.registry.__GLOBAL_NAMESPACE


class PytreeNode:
    """One class that optree and JAX take apart and put together.

    JAX is told only when a program has loaded it, because importing it takes a second.

    Args:
        kind: the class; its constructor calls `tell_jax`.
        flatten: returns the children of an instance, and the rest of it, hashable.
        unflatten: builds an instance from the rest and the children, which may be any objects: it checks nothing.
    """

    def __init__(self, kind: type, flatten: Flatten, unflatten: Unflatten) -> None:
        self._node = (kind, flatten, unflatten)
        self._jax_knows = False
        self._lock = threading.Lock()
        optree.register_pytree_node(kind, flatten, unflatten, namespace=_EVERYWHERE)  # type: ignore[arg-type]

    def tell_jax(self) -> None:
        """Registers the class with JAX, once, if JAX is loaded."""
        if self._jax_knows or "jax" not in sys.modules:
            return
        # There is no registry while another thread is still importing JAX.
        register = getattr(getattr(sys.modules["jax"], "tree_util", None), "register_pytree_node", None)
        with self._lock:
            if register is not None and not self._jax_knows:
                register(*self._node)
                self._jax_knows = True

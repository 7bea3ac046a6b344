"""Views of columns that a policy may add with its first call, and sees before it."""

# Rules: views V15

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature
from headrace.views.view import View


def column_of(name: str, view: View) -> str:
    """Returns the name of the column that a view shows, without the path inside its tree.

    >>> column_of("camera", View("observation/camera", shift=-1))
    'observation'
    """
    return (view.data_col or name).split("/")[0]


def columns_shown(views: Mapping[str, View]) -> set[str]:
    """Returns the names of all columns that views show."""
    return {column_of(name, view) for name, view in views.items()}


def signature_of_space(space: Any) -> Signature:
    """Returns the signature of a view's space: of a gymnasium space, of an `ArraySpec`, or the signature itself.

    >>> signature_of_space(ArraySpec((3,), "float32")), signature_of_space(Signature({"jump": ArraySpec((), "int64")}))
    (Signature(float32[3]), Signature({'jump': int64[]}))
    """
    if isinstance(space, Signature):
        return space
    return Signature(space) if isinstance(space, ArraySpec) else Signature.of_space(space)


def spec_of_space(space: Any) -> Any:
    """Returns the tree of specs of a view's space."""
    return signature_of_space(space).tree


def unknown_views(views: Mapping[str, View], known: Container[str]) -> dict[str, View]:
    """Returns the views of the row's own agent whose columns are not known yet."""
    return {
        name: view
        for name, view in views.items()
        if view.agent is None and column_of(name, view) not in known
    }


def promised_specs(views: Mapping[str, View]) -> dict[str, Any]:
    """Returns the specs of the columns that views with a space show, a tree for each column.

    >>> views = {"h": View("aux/h", ArraySpec((2,), "float32")), "c": View("aux/c", ArraySpec((), "int64"))}
    >>> promised_specs(views)
    {'aux': {'c': int64[], 'h': float32[2]}}
    """
    found: dict[str, Any] = {}
    for name, view in views.items():
        if view.space is not None:
            found.setdefault(view.data_col or name, spec_of_space(view.space))
    return nested(found)


def nested(by_path: Mapping[str, Any]) -> dict[str, Any]:
    """Returns entries at paths as one tree; an entry inside another one is left out.

    >>> nested({"info/parts/half": 1, "info/time": 2, "info/parts": 3})
    {'info': {'parts': 3, 'time': 2}}
    """
    tree: dict[str, Any] = {}
    for path in sorted(by_path):
        if any(path.startswith(f"{other}/") for other in by_path):
            continue
        *outer, last = path.split("/")
        inner = tree
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = by_path[path]
    return tree


def with_promised(tree: Mapping[str, Any], promised: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a tree with the promised entries that it does not have.

    >>> with_promised({"info": {"time": 1}}, {"info": {"time": 2, "lives": 3}, "aux": 4})
    {'info': {'time': 1, 'lives': 3}, 'aux': 4}
    """
    found = dict(tree)
    for name, entry in promised.items():
        known = found.setdefault(name, entry)
        if known is not entry and isinstance(known, dict) and isinstance(entry, dict):
            found[name] = with_promised(known, entry)
    return found


def check_promised(unknown: Mapping[str, View], known: Iterable[str]) -> None:
    """Refuses views of unknown columns that a policy sees before its first call, and that have no space.

    Raises:
        SpecError: the message has the view's name, its column, and the columns there are.
    """
    for name, view in unknown.items():
        if view.space is None:
            raise SpecError(
                f"view {name!r}: no column {view.data_col or name!r}; there are {', '.join(known)}. The policy reads "
                "this view before its first call: if it returns this column, give the view a space"
            )

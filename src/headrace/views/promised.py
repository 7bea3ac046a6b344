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


def promised_specs(unknown: Mapping[str, View]) -> dict[str, Any]:
    """Returns the specs of columns that are not known yet, after the spaces of the views that show them."""
    return {
        column_of(name, view): spec_of_space(view.space)
        for name, view in unknown.items()
        if view.space is not None and view.agent is None
    }


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

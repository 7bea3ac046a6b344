"""Entries of an environment's `info` that views show, as columns of lanes."""

# Rules: views-rollouts R9, V2, V15

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import SpecError
from headrace.rollouts.columns import INFO
from headrace.spec import Signature
from headrace.trees import at_path
from headrace.views import View
from headrace.views.causality import acting_views
from headrace.views.promised import column_of, nested, spec_of_space


class InfoEntries:
    """Learns the specs of the entries that views show, from their spaces or from the first values.

    Attributes:
        wanted: the keys to each entry, by the path of its column.

    >>> entries = InfoEntries()
    >>> entries.use({"lives": View("info/lives"), "action": View()})
    >>> entries.wanted, list(entries.unknown())
    ({'info/lives': ('lives',)}, ['lives'])
    >>> entries.learn({"lives": 3, "fps": 60.0}, "environment 0")
    True
    >>> entries.tree, entries.values({"lives": 2, "fps": 60.0}, "environment 0")
    ({'info': {'lives': int64[]}}, {'info/lives': array(2)})
    """

    def __init__(self) -> None:
        self.wanted: dict[str, tuple[str, ...]] = {}
        self._views: dict[str, View] = {}
        self._specs: dict[str, Any] = {}

    def use(self, views: Mapping[str, View]) -> None:
        """Takes over views.

        Raises:
            SpecError: a view that the policy sees has no space, so that its spec is not known before the first step.
        """
        found = {
            name: view for name, view in views.items() if column_of(name, view) == INFO and view.agent is None
        }
        wanted = {_path(name, view): tuple(_path(name, view).split("/")[1:]) for name, view in found.items()}
        specs = {path: spec for path, spec in self._specs.items() if path in wanted}
        for name, view in found.items():
            if view.space is not None:
                specs.setdefault(_path(name, view), spec_of_space(view.space))
        for name in acting_views(found):
            if _path(name, found[name]) not in specs:
                raise SpecError(
                    f"view {name!r}: {_path(name, found[name])!r}: expected a space, because the policy reads this "
                    "view before the first step"
                )
        self._views, self.wanted, self._specs = found, wanted, specs

    def unknown(self) -> dict[str, View]:
        """Returns the views whose entries have no known spec yet."""
        return {name: view for name, view in self._views.items() if _path(name, view) not in self._specs}

    @property
    def tree(self) -> dict[str, Any]:
        """Specs of the known entries, as the column `info`; empty if there are none."""
        return nested(self._specs)

    def learn(self, info: Mapping[str, Any], where: str) -> bool:
        """Learns the specs that are not known yet, and returns whether there were any.

        Raises:
            SpecError: an entry is missing, or is not made of arrays and numbers.
        """
        new = [path for path in self.wanted if path not in self._specs]
        for path in new:
            entry = self._entry(path, info, where)
            try:
                self._specs[path] = at_path(Signature.like(nested({path: entry})).tree, path)
            except SpecError as error:
                raise SpecError(f"{where}: {error}") from error
        return bool(new)

    def values(self, info: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Returns the values of the entries, by column.

        Raises:
            SpecError: an entry is missing, or its column cannot hold it.
        """
        entries = nested({path: self._entry(path, info, where) for path in self._specs})
        try:
            return Signature(self.tree).validate(entries)
        except SpecError as error:
            raise SpecError(f"{where}: {error}; the space of a view tells the dtype of all values") from error

    def _entry(self, path: str, info: Any, where: str) -> Any:
        for key in self.wanted[path]:
            if not isinstance(info, Mapping) or key not in info:
                there = ", ".join(map(str, info)) if isinstance(info, Mapping) else repr(info)
                raise SpecError(f"{where}: {path}: expected this entry at each step, got {there or 'none'}")
            info = info[key]
        return info


def _path(name: str, view: View) -> str:
    return view.data_col or name

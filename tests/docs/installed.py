"""Hides the packages that the reader of a page has not installed: those outside of the extras that it names."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from types import ModuleType

from packaging.requirements import Requirement

from pai_sdk._core.extras import DISTRIBUTION

__all__ = ["hide_what_is_not_installed", "named_requirements"]

_FIRST = ("service",)  # of the quickstart, with which all other pages begin
_EXTRAS = re.compile(r"\[([a-z]+(?:,[a-z]+)*)\](?!\()")
_PIP = re.compile(r"pip install ([^`\n#]+)")


def named_requirements(text: str) -> list[str]:
    """Returns what a page tells its reader to install."""
    known = set(distribution(DISTRIBUTION).metadata.get_all("Provides-Extra") or ())
    extras = {name for names in _EXTRAS.findall(text) for name in names.split(",")} & known
    words = [word.strip("'\"") for line in _PIP.findall(text) for word in line.split()]
    others = [word for word in words if re.fullmatch(r"[A-Za-z][\w-]*", word)]
    return [f"{DISTRIBUTION}[{','.join(sorted({*_FIRST, *extras}))}]", *others]


def hide_what_is_not_installed(text: str) -> None:
    """Make imports in this process fail as they do for a reader of that page."""
    sys.meta_path.insert(0, _Hidden(_closure([*named_requirements(text), "sybil", "setuptools", "pip"])))


class _Hidden(MetaPathFinder):
    def __init__(self, allowed: set[str]) -> None:
        self._hidden = {
            module
            for module, names in packages_distributions().items()
            if allowed.isdisjoint(map(_normal, names)) and module not in sys.modules
        }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self._hidden:
            raise ModuleNotFoundError(
                f"No module named {fullname!r} (the page does not install it)", name=fullname
            )
        return None


def _closure(requirements: Iterable[str]) -> set[str]:
    """Returns the distributions that pip installs for these requirements."""
    waiting, found = [Requirement(each) for each in requirements], set()
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):
            key = (_normal(requirement.name), extra)
            if key in found:
                continue
            found.add(key)
            try:
                needed = distribution(requirement.name).requires or ()
            except PackageNotFoundError:
                continue
            each = map(Requirement, needed)
            waiting += [one for one in each if one.marker is None or one.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()

"""Import paths that were public before the package had doors, and paths of code written for alipai.

The first raise an ImportError that names the new path, until version 0.2. The second are found in the module that
`pai_sdk/__init__.py` registers. Standard library only, Python 3.8: jobs import this.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FORMER", "install"]

FORMER = {
    "pai_sdk.backend.base": "pai_sdk.jobs",
    "pai_sdk.base.files": "pai_sdk.storage",
    "pai_sdk.code.package": "pai_sdk.jobs",
    "pai_sdk.display.base": "pai_sdk.jobs",
    "pai_sdk.execution.base": "pai_sdk.executors",
    "pai_sdk.execution.process.executor": "pai_sdk.executors",
    "pai_sdk.job.follow": "pai_sdk.jobs",
    "pai_sdk.job.notifications": "pai_sdk",
    "pai_sdk.run.binary_columns": "pai_sdk.runs",
    "pai_sdk.run.buckets": "pai_sdk.runs",
    "pai_sdk.run.callbacks": "pai_sdk.callbacks",
    "pai_sdk.run.checkpoints": "pai_sdk.checkpoints",
    "pai_sdk.run.event_data": "pai_sdk.alipai.mindinsight",
    "pai_sdk.run.events": "pai_sdk.runs",
    "pai_sdk.run.function": "pai_sdk.functions",
    "pai_sdk.run.function_runner": "pai_sdk.functions",
    "pai_sdk.run.manager": "pai_sdk.runs",
    "pai_sdk.run.preemption": "pai_sdk.reports",
    "pai_sdk.run.report": "pai_sdk.reports",
    "pai_sdk.run.series": "pai_sdk.runs",
    "pai_sdk.run.store": "pai_sdk.runs",
    "pai_sdk.run.stored_checkpoints": "pai_sdk.runs",
    "pai_sdk.run.summary_watcher": "pai_sdk.alipai.mindinsight",
    "pai_sdk.run.watched_run": "pai_sdk.runs",
    "pai_sdk.service.embedded": "pai_sdk.service",
    "pai_sdk.storage.filesystem": "pai_sdk.storage",
    "pai_sdk.storage.oss": "pai_sdk.storage",
    "pai_sdk.storage.store": "pai_sdk.storage",
    "pai_sdk.storage.sync": "pai_sdk.storage",
    "pai_sdk.storage.transfer": "pai_sdk.storage",
    "pai_sdk.storage.uri": "pai_sdk.storage",
    "pai_sdk.submit.job_file": "pai_sdk.jobs",
    "pai_sdk.submit.parameters": "pai_sdk.jobs",
    "pai_sdk.trace.adapters": "pai_sdk.trace",
}
"""Modules that were public, each with the one that has their names now."""

# Packages that hold modules of FORMER and have no door of their name.
_FORMER_PACKAGES = frozenset(
    f"pai_sdk.{name}"
    for name in ("backend", "base", "code", "display", "execution", "execution.process", "run", "submit")
)


def install(aliases: str = "") -> None:
    """Adds the finders of former paths."""
    # A program may have removed the package from `sys.modules` and import it again.
    mine = (_Finder.__module__, _Finder.__qualname__)
    usual = [f for f in sys.meta_path if (type(f).__module__, type(f).__qualname__) != mine]
    # The first is asked before the usual finders: the `__path__` of an alias is that of the module behind it, so
    # they would load a submodule a second time. The last is for modules that do not exist. `aliases` is the path
    # of a module with a mapping `PATHS`, former path to module; empty for none.
    sys.meta_path[:] = [_Finder(aliases, is_first=True), *usual, _Finder(aliases, is_first=False)]


class _Finder(MetaPathFinder):
    """Finds modules by their former paths."""

    def __init__(self, aliases: str, *, is_first: bool) -> None:
        self._aliases = aliases
        self._is_first = is_first

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        parent, _, _ = fullname.rpartition(".")
        if fullname.partition(".")[0] != "pai_sdk" or not parent:
            return None
        if self._is_first and getattr(sys.modules.get(parent), "__name__", parent) == parent:
            return None  # not below an alias
        paths: Mapping[str, str] = import_module(self._aliases).PATHS if self._aliases else {}
        if fullname in paths:
            return ModuleSpec(fullname, _AliasLoader(paths[fullname]))
        if fullname in FORMER:
            raise ImportError(f"{fullname} has moved: import its names from {FORMER[fullname]}", name=fullname)
        if fullname in _FORMER_PACKAGES:
            return ModuleSpec(fullname, _EmptyLoader(), is_package=True)
        return None


class _EmptyLoader(Loader):
    """Makes an empty package, so that the finder is asked for the module in it and can name its whole path."""

    def exec_module(self, module: ModuleType) -> None:
        pass


class _AliasLoader(Loader):
    """Gives the module `target` in place of another one."""

    def __init__(self, target: str) -> None:
        self._target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has set the spec of the alias, by which the module would be loaded again.
        module.__spec__ = self._spec

    def get_code(self, fullname: str) -> Any:
        """Returns the code of the module, for `python -m`."""
        spec = find_spec(self._target)
        loader: Any = spec.loader if spec else None
        return loader.get_code(self._target)

"""Import paths that were public before the package had doors, and paths of code written for alipai.

The first raise an ImportError that names the new path, until version 0.2. In a job that an earlier release has
submitted they work, because the job may have waited in a queue while this release was installed. The second are
found in the module that `pai_sdk/__init__.py` registers. Standard library only, Python 3.8: jobs import this.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

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

STORED = {
    # Programs `python -c "from … import main; …"`: in the batch script of a job that waits in Slurm, and in a
    # service or client that still runs while its files are replaced.
    "pai_sdk.agent.slurm.batch": "pai_sdk._host.agent.slurm.batch",
    "pai_sdk.agent.slurm.task": "pai_sdk._host.agent.slurm.task",
    "pai_sdk.agent.supervisor": "pai_sdk._host.agent.supervisor",
    "pai_sdk.backend.local.uploading": "pai_sdk._client.backend.local.uploading",
    "pai_sdk.execution.ray.mirror": "pai_sdk._host.execution.ray.mirror",
    "pai_sdk.service.__main__": "pai_sdk._service.__main__",
    "pai_sdk.service.jobs.patterns": "pai_sdk._service.services.jobs.patterns",
    # Pickled calls of functions refer to what they import from pai_sdk by the module that defines it.
    "pai_sdk.run.report.callbacks": "pai_sdk._data.run.report.callbacks",
    "pai_sdk.run.report.checkpoints": "pai_sdk._data.run.report.checkpoints",
    "pai_sdk.run.report.preemption": "pai_sdk._data.run.report.preemption",
    "pai_sdk.run.report.session": "pai_sdk._data.run.report.session",
}
"""Internal modules that jobs of earlier releases name, in programs and pickles; each with its path now."""

# Packages that hold modules of the tables above. Those with a name of today are no former packages: doors, and the
# path `pai_sdk.job` of alipai.
_FORMER_PACKAGES = frozenset(
    ".".join(parts[:count])
    for parts in (path.split(".") for path in (*FORMER, *STORED))
    for count in range(2, len(parts))
) - {"pai_sdk.job", "pai_sdk.service", "pai_sdk.storage", "pai_sdk.trace"}

# Where the internal modules of former packages are now. A pickled call may refer to any, as to a run store.
_WINGS = {
    **dict.fromkeys(("job", "submit"), "_client"),
    **dict.fromkeys(("run", "storage", "trace"), "_data"),
}


_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def shipped_lacks(name: str) -> str:
    """Returns the message for what the package that is shipped with jobs does not have."""
    return (
        f"the pai_sdk that is shipped with jobs has no {name}; for all of pai_sdk, install a wheel of it in the "
        "image (`pai-sdk wheel` makes one)"
    )


def install(aliases: str = "") -> None:
    """Adds the finders of former paths."""
    tables: Any = import_module(aliases) if aliases else None
    paths: Mapping[str, str] = tables.PATHS if tables else {}
    replaced: Mapping[str, str] = tables.REPLACED if tables else {}
    # A program may have removed the package from `sys.modules` and import it again.
    mine = (_Finder.__module__, _Finder.__qualname__)
    usual = [f for f in sys.meta_path if (type(f).__module__, type(f).__qualname__) != mine]
    # The first is asked before the usual finders: the `__path__` of an alias is that of the module behind it, so
    # they would load a submodule a second time. The last is for modules that do not exist. `aliases` is the path
    # of a module with the mappings `PATHS`, former path to module, and `REPLACED`, path to text.
    # It is empty in jobs.
    first, last = (_Finder(paths, replaced, is_first=is_first) for is_first in (True, False))
    sys.meta_path[:] = [first, *usual, last]


# The classes below have no bases from importlib.abc: that module imports 24 others, in each job that reports.


class _Finder:
    """Finds modules by their former paths."""

    # `find_spec` imports nothing: Python calls it with the lock of all imports (3.8 to 3.13), so an import that
    # waits in it for a module of another thread, which waits for this lock, would never return.

    def __init__(self, paths: Mapping[str, str], replaced: Mapping[str, str], *, is_first: bool) -> None:
        self._paths = paths
        self._replaced = replaced
        self._is_first = is_first

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        parent, _, _ = fullname.rpartition(".")
        if fullname.partition(".")[0] != "pai_sdk" or not parent:
            return None
        if self._is_first and getattr(sys.modules.get(parent), "__name__", parent) == parent:
            return None  # not below an alias
        if fullname in STORED:
            return _spec(fullname, _AliasLoader(STORED[fullname]))
        if fullname in self._paths:
            return _spec(fullname, _AliasLoader(self._paths[fullname]))
        if fullname in FORMER:
            # A package of stored modules is imported with each of them: it raises the error for its names only.
            if not _is_earlier_job() and not any(path.startswith(fullname + ".") for path in STORED):
                raise _moved(fullname)
            return _spec(fullname, _MovedLoader(FORMER[fullname]), is_package=True)
        if fullname in _FORMER_PACKAGES:
            return _spec(fullname, _EmptyLoader(), is_package=True)
        if _is_earlier_job() and (target := _in_wing(fullname)):
            return _spec(fullname, _AliasLoader(target))
        self._refuse(fullname, parent)
        return None

    def _refuse(self, fullname: str, parent: str) -> None:
        """Raises the error of a module that does not exist, if there is more to say than that."""
        # Not for programs that only ask whether the module exists.
        if fullname in self._replaced and sys._getframe(3).f_code.co_name == "_find_and_load_unlocked":
            message = f"{fullname} is not part of pai_sdk; use instead: {self._replaced[fullname]}"
            raise ModuleNotFoundError(message, name=fullname)
        if not self._paths and parent == "pai_sdk":
            raise ModuleNotFoundError(shipped_lacks(fullname), name=fullname)


def _spec(fullname: str, loader: Any, *, is_package: bool = False) -> ModuleSpec:
    return ModuleSpec(fullname, loader, is_package=is_package)


def _moved(former: str) -> ImportError:
    return ImportError(f"{former} has moved: import its names from {FORMER[former]}", name=former)


def _in_wing(former: str) -> str:
    """Returns the path of an internal module now, or an empty string if there is none."""
    package, _, name = former.partition(".")[2].partition(".")
    if package not in _WINGS or not name:
        return ""
    target = f"{_WINGS[package]}.{package}.{name}"
    file = os.path.join(_PACKAGE, *target.split("."))
    return f"pai_sdk.{target}" if os.path.isfile(f"{file}.py") or os.path.isdir(file) else ""


def _is_earlier_job() -> bool:
    """Returns True in a job of an earlier release: the package that came with it has the former paths."""
    channel = os.environ.get("PAI_INPUT_PAI_SDK", "/ml/input/data/pai_sdk")
    return os.path.isdir(os.path.join(channel, "pai_sdk", "run"))


class _EmptyLoader:
    """Makes an empty package, so that the finder is asked for the module in it and can name its whole path."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # as the import system makes it

    def exec_module(self, module: ModuleType) -> None:
        pass


class _MovedLoader(_EmptyLoader):
    """Makes a package with the names of a door, for jobs of earlier releases; in others, each name is an error."""

    def __init__(self, door: str) -> None:
        self._door = door

    def exec_module(self, module: ModuleType) -> None:
        path = module.__name__

        def load(name: str) -> Any:
            # Other names of this form are looked up by Python itself, as by `inspect`.
            if name.startswith("__") and name != "__all__":
                raise AttributeError(f"module {path!r} has no attribute {name!r}")
            if not _is_earlier_job():
                raise _moved(path)
            return getattr(import_module(self._door), name)

        module.__getattr__ = load  # type: ignore[method-assign]


class _AliasLoader:
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

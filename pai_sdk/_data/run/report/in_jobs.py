"""The `pai_sdk` of a job whose image has none: what trainings import, and nothing else.

`code.job_package` copies this module as `pai_sdk/__init__.py` into the package that is shipped with a job. If
the image has pai_sdk installed, that one is used, unless its import fails or it has no `report`. Standard
library only, syntax of Python 3.8.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "ReportSession",
    "StopTraining",
    "checkpoint_dir",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_preemption_info",
    "is_session_enabled",
    "report",
    "set_checkpoint_config",
]


def _use_installed(folder: Path) -> bool:
    """Imports the image's own pai_sdk in place of the shipped one below `folder`; returns whether it works."""
    search_path = [entry for entry in sys.path if Path(entry or ".").resolve() != folder]
    spec = PathFinder.find_spec("pai_sdk", search_path)
    if spec is None or spec.loader is None:
        return False
    shipped = sys.modules["pai_sdk"]
    installed = sys.modules["pai_sdk"] = module_from_spec(spec)
    try:
        spec.loader.exec_module(installed)
        installed.report  # noqa: B018 # loads it
    # The image may lack a dependency, or have a pai_sdk without `report`. The shipped package needs the standard
    # library only, so it is restored, and no half-imported submodule may stay.
    except Exception:
        for name in [name for name in sys.modules if name.startswith("pai_sdk.")]:
            del sys.modules[name]
        sys.modules["pai_sdk"] = shipped
        return False
    return True


if __name__ != "pai_sdk" or not _use_installed(Path(__file__).resolve().parents[1]):
    from pai_sdk._core.names import import_paths, lazy_names
    from pai_sdk._data.run.report.checkpoints import Checkpoint, CheckpointConfig
    from pai_sdk._data.run.report.preemption import get_preemption_info
    from pai_sdk._data.run.report.report_session import ReportSession, StopTraining
    from pai_sdk._data.run.report.session import (
        checkpoint_dir,
        get_all_reported_checkpoints,
        get_checkpoint,
        get_context,
        is_session_enabled,
        report,
        set_checkpoint_config,
    )

    if __name__ == "pai_sdk":
        import_paths.install()


def __getattr__(name: str) -> object:
    message = import_paths.shipped_lacks(f"{name!r}: it has {', '.join(__all__)}")
    # `from pai_sdk import …` replaces an AttributeError by its own error, which has no reason. Python itself looks
    # up names such as `__path__`.
    is_import = not name.startswith("__") and lazy_names.is_from_import(sys._getframe(1))
    raise ImportError(message) if is_import else AttributeError(message)

"""The modules of pai_sdk that a node needs: the agent and its dependencies. Standard library only."""

from __future__ import annotations

from pathlib import Path

__all__ = ["agent_package"]

_PACKAGE = Path(__file__).resolve().parents[3]
_AGENT_DEPENDENCIES = ("_core/__init__.py", "_core/files.py", "_core/reasons.py", "_host/__init__.py", "errors.py")


def agent_package() -> dict[str, bytes]:
    """Returns the modules by their path in a folder of `sys.path`."""
    names = [
        *_AGENT_DEPENDENCIES,
        *(path.relative_to(_PACKAGE).as_posix() for path in _PACKAGE.glob("_host/agent/**/*.py")),
    ]
    return {"pai_sdk/__init__.py": b"", **{f"pai_sdk/{name}": (_PACKAGE / name).read_bytes() for name in names}}

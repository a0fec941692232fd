"""The script that measures the package, `.ci/measure.py`, as a module."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def _load() -> Any:
    spec = spec_from_file_location("measure", ROOT / ".ci" / "measure.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["measure"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


measure: Any = _load()

"""Shows the section `Example:` of docstrings as code. griffe knows `Examples:` only."""

from __future__ import annotations

import re
from typing import Any

import griffe


class DocstringExamples(griffe.Extension):
    """Renames the section while the documentation is built."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """One class, function or module."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)

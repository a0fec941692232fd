"""What the names of jobs begin with, and the folders of their outputs.

The default output folder of a job is made of its name. The suffix keeps the folders distinct, so jobs do not
overwrite the outputs of each other. A name that the user gave has its suffix in the folder only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pai_sdk._wire.pai.job_names import new_suffix, suffix_of_key

_SCRIPT = re.compile(r"(?:^|[\s/'\"])([A-Za-z0-9][\w.-]*)\.(?:py|sh)\b")
_MODULE = re.compile(r"\s-m\s+(?:\w+\.)*([A-Za-z0-9]\w*)")


def new_folder(name: str, *, is_explicit: bool, key: str | None = None) -> str:
    """Returns the unique name of a new job's output folder: the job's name, with a suffix if the user set it."""
    if not is_explicit:
        return name
    return f"{name}-{new_suffix() if key is None else suffix_of_key(key)}"


def base_of_command(command: str | Sequence[str]) -> str:
    """Returns the name of the script or module that a command starts; empty if it names none."""
    text = command if isinstance(command, str) else " ".join(str(word) for word in command)
    match = _SCRIPT.search(text) or _MODULE.search(text)
    return match[1][:40].rstrip("-_.") if match else ""

"""Optional libraries: the command that installs an extra, and pandas, which no extra has.

The package is in no index. A name in an index may belong to another owner, so nothing here installs the package by
its name.
"""

from __future__ import annotations

import json
import re
import shlex
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pai_sdk.errors import MissingExtraError

__all__ = ["DISTRIBUTION", "import_pandas", "install_command", "installed_distribution", "missing_extra"]

DISTRIBUTION = "pai-training-sdk"
"""The name of the distribution; the import is `pai_sdk`, the command `pai-sdk`."""

_NAME_AND_VERSIONS = re.compile(r"\s*([^;]+?)\s*(?:;(.*))?")


def installed_distribution() -> Distribution | None:
    """Returns the installed distribution, or None where only the folder of the package is on the path."""
    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None


def install_command(extra: str = "") -> str:
    """Returns the command that installs this package with an extra, from where it was installed.

    This is the clone or the wheel that pip has recorded (PEP 610). If that is gone, the command names what the
    extra requires.

    Args:
        extra: one or several, as in `service,postgres`; empty for the package alone.

    Example:
        >>> install_command("tune").startswith("pip install ")
        True
    """
    found = installed_distribution()
    names = f"[{extra}]" if extra else ""
    source, options = _source(found) if found is not None else (None, "")
    if source is not None:
        return f"pip install {options}{shlex.quote(f'{source}{names}')}"
    if found is not None and (needed := _requirements(found, extra)):
        return f"pip install {' '.join(map(shlex.quote, needed))}"
    return f"pip install {shlex.quote(f'.{names}')} (in a clone of pai_sdk)"


def missing_extra(what: str, extra: str) -> MissingExtraError:
    """Returns the error for a library that an extra installs.

    Args:
        what: the start of the message, such as `a Tuner needs Optuna`.
        extra: the extra that has the library.
    """
    text = f"{what}, which is not installed; run: {install_command(extra)}"
    return MissingExtraError(text, extra=extra)


def import_pandas() -> Any:
    """Returns the module pandas.

    Raises:
        MissingExtraError: it is not installed.

    Example:
        >>> import_pandas().DataFrame({"loss": [0.5]}).shape
        (1, 1)
    """
    try:
        return import_module("pandas")
    except ImportError as error:
        raise MissingExtraError("a data frame needs pandas: pip install pandas", extra="pandas") from error


def _source(found: Distribution) -> tuple[Path | None, str]:
    """Returns the clone or wheel that the package was installed from, and the options of pip for it."""
    try:
        record = json.loads(found.read_text("direct_url.json") or "{}")
        url = urlsplit(record.get("url", ""))
        path = Path(url2pathname(url.path))
        if url.scheme != "file" or not path.exists():
            return None, ""
        return path, "-e " if record.get("dir_info", {}).get("editable") else ""
    except (ValueError, AttributeError, OSError):  # the file was damaged, or written by another installer
        return None, ""


def _requirements(found: Distribution, extra: str) -> list[str]:
    """Returns what the extras need, as pip takes it."""
    extras = {name.strip() for name in extra.split(",")}
    needed = []
    for line in found.requires or ():
        match = _NAME_AND_VERSIONS.fullmatch(line)
        of = re.search(r"extra == ['\"]([^'\"]+)['\"]", (match[2] or "") if match else "")
        if match and of and of[1] in extras:
            needed.append(match[1])
    return list(dict.fromkeys(needed))

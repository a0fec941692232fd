"""Optional libraries: the command that installs an extra, and pandas, which no extra has.

The package is in no index. A name in an index may belong to another owner, so no command installs it by name.
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

DISTRIBUTION = "pai-training-sdk"
"""The name of the distribution; the import is `pai_sdk`, the command `pai-sdk`."""

_NAME_AND_VERSIONS = re.compile(r"\s*([^;]+?)\s*(?:;(.*))?")


def installed_distribution() -> Distribution | None:
    """Returns the installed distribution, or None if only the folder of the package is on the path."""
    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None


def install_command(extra: str = "") -> str:
    """Returns the command that installs this package with extras (`service,postgres`), from its source."""
    # The clone or wheel that pip has recorded (PEP 610). If that is gone, the command names the requirements of
    # the extra.
    installed = installed_distribution()
    names = f"[{extra}]" if extra else ""
    source, options = _source(installed) if installed is not None else (None, "")
    if source is not None:
        return f"pip install {options}{shlex.quote(f'{source}{names}')}"
    if installed is not None and (needed := _requirements(installed, extra)):
        return f"pip install {' '.join(map(shlex.quote, needed))}"
    return f"pip install {shlex.quote(f'.{names}')} (in a clone of pai_sdk)"


def missing_extra(need: str, extra: str) -> MissingExtraError:
    """Returns the error for a library of an extra; the message starts with `need` ("a Tuner needs Optuna")."""
    message = f"{need}, which is not installed; run: {install_command(extra)}"
    return MissingExtraError(message, extra=extra)


def import_pandas() -> Any:
    """Returns the module pandas."""
    try:
        return import_module("pandas")
    except ImportError as error:
        raise MissingExtraError("a data frame needs pandas: pip install pandas", extra="pandas") from error


def _source(installed: Distribution) -> tuple[Path | None, str]:
    """Returns the clone or wheel that the package was installed from, and the options of pip for it."""
    try:
        record = json.loads(installed.read_text("direct_url.json") or "{}")
        url = urlsplit(record.get("url", ""))
        path = Path(url2pathname(url.path))
        if url.scheme != "file" or not path.exists():
            return None, ""
        return path, "-e " if record.get("dir_info", {}).get("editable") else ""
    except (ValueError, AttributeError, OSError):
        # The file was damaged, or written by another installer.
        return None, ""


def _requirements(installed: Distribution, extra: str) -> list[str]:
    """Returns the requirements of the extras in pip's format."""
    extras = {name.strip() for name in extra.split(",")}
    needed = []
    for line in installed.requires or ():
        match = _NAME_AND_VERSIONS.fullmatch(line)
        of = re.search(r"extra == ['\"]([^'\"]+)['\"]", (match[2] or "") if match else "")
        if match and of and of[1] in extras:
            needed.append(match[1])
    return list(dict.fromkeys(needed))

"""The file with endpoint and key that `dlc config` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pai_sdk._core.files import replace_file
from pai_sdk.errors import SettingsError

DEFAULT_PATH = Path("~/.dlc/config")
KEYS = ("access_id", "access_key", "endpoint", "region", "protocol")

_HEADER = "# written by pai-sdk dlc config"
_LINE = re.compile(r"""\s*"?([A-Za-z_]+)"?\s*[=:]\s*(.*?)\s*,?\s*""")
# Spellings of other programs.
_ALIASES = {
    "accessid": "access_id",
    "accesskeyid": "access_id",
    "accesskey": "access_key",
    "accesskeysecret": "access_key",
    "regionid": "region",
}


def read_config(path: Path, *, must_exist: bool) -> dict[str, str]:
    """Returns the known values of a file: JSON, or lines `key=value` or `key: value`.

    The format of the original is not public, so any of these is read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        if must_exist:
            raise SettingsError(f"there is no config file {path}") from error
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read") from error
    values: dict[str, str] = {}
    for name, value in _pairs(text):
        key = _ALIASES.get(name.lower().replace("_", ""), name.lower())
        if key in KEYS and value:
            values[key] = value
    return values


def _pairs(text: str) -> list[tuple[str, str]]:
    try:
        content: Any = json.loads(text)
    except ValueError:
        matches = (_LINE.fullmatch(line) for line in text.splitlines() if not line.lstrip().startswith("#"))
        return [(match[1], match[2].strip("\"'")) for match in matches if match]
    return [(name, str(value)) for name, value in content.items()] if isinstance(content, dict) else []


def write_config(path: Path, values: Mapping[str, str]) -> None:
    """Adds values to a file that only its owner can read; refuses one that another program has written."""
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_HEADER):
        raise SettingsError(f"{path} is of another program; choose another file with --config FILE")
    merged = {**read_config(path, must_exist=False), **values}
    lines = [_HEADER, *(f"{key}={merged[key]}" for key in KEYS if key in merged)]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, "\n".join(lines) + "\n", mode=0o600)

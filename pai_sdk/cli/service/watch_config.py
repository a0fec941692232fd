"""Reads the file of `pai-sdk serve --watch-config`."""

from __future__ import annotations

from pathlib import Path

from pai_sdk._client.submit.yaml_file import read_yaml
from pai_sdk._core.paths import expanded
from pai_sdk._data.rules.codec import WatchConfig


def read_watch_config(path: Path | None) -> WatchConfig:
    """Returns the rules in a file; those of a service without a file are the default ones."""
    if path is None:
        return WatchConfig()
    file = read_yaml(expanded(path))
    return WatchConfig.parse(file.value if file.value is not None else {}, str(path))

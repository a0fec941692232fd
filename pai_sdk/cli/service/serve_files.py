"""Reads the files that options of `pai-sdk serve` name."""

from __future__ import annotations

from pathlib import Path

from pai_sdk._client.submit.yaml_file import read_yaml
from pai_sdk._core.paths import expanded
from pai_sdk._core.prices import PriceList
from pai_sdk._data.rules.codec import WatchConfig
from pai_sdk.errors import InvalidInputError


def read_watch_config(path: Path | None) -> WatchConfig:
    """Returns the rules of `--watch-config`; those of a service without a file are the default ones."""
    if path is None:
        return WatchConfig()
    file = read_yaml(expanded(path))
    return WatchConfig.parse(file.value if file.value is not None else {}, str(path))


def read_price_list(path: Path | None) -> PriceList | None:
    """Returns the prices of `--prices`; an InvalidInputError has all problems of the file."""
    if path is None:
        return None
    file = read_yaml(expanded(path))
    if file.problems:
        raise InvalidInputError(file.problems)
    return PriceList.parse(file.value, lambda key: file.where(key) if key else str(path))

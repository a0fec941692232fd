"""A request to a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Post:
    """A request with a JSON body: the URL and the headers may have secrets."""

    url: str = field(repr=False)
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

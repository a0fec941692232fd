"""Fields of algorithms that `pai.spec` writes strictly and `pai.definitions` reads tolerantly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict

from pai_sdk._wire.pai.secret_values import masked


class _Fields(BaseModel):
    """Fields without a behaviour; that comes from `Sent` or `Received`."""

    model_config = ConfigDict(defer_build=True)


class RangeFields(_Fields):
    """Of the values that a hyperparameter may take."""

    enum: list[str] | None = None
    minimum: str | None = None
    maximum: str | None = None
    exclusive_minimum: bool | None = None
    exclusive_maximum: bool | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None


class ParameterFields(_Fields):
    """Of a hyperparameter, but for its range."""

    name: str
    type: str | None = None
    default_value: str | None = None
    description: str | None = None
    display_name: str | None = None
    required: bool | None = None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, masked(self.name, value) if name == "default_value" and value else value


class ChannelFields(_Fields):
    """Of an input or output channel."""

    name: str
    description: str | None = None
    required: bool | None = None
    supported_channel_types: list[str] | None = None
    properties: dict[str, Any] | None = None

"""Labels of experiments and models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import Field

from pai_sdk._wire.base import Sent
from pai_sdk._wire.pai.record import KeyValue
from pai_sdk._wire.pai.spec import Label


class NewLabels(Sent):
    """The body of actions that add labels, or replace those of the same key."""

    labels: list[Label] = Field(default_factory=list)


def label_list(labels: Mapping[str, str]) -> list[Label]:
    """Returns labels for a request."""
    return [Label(key=key, value=value) for key, value in labels.items()]


def label_records(labels: Mapping[str, str]) -> list[KeyValue]:
    """Returns labels for a response."""
    return [KeyValue(key=key, value=value) for key, value in labels.items()]


def labels_by_key(labels: Iterable[Label]) -> dict[str, str]:
    """Returns the value of each label; the last one of a key counts."""
    return {label.key: label.value for label in labels}

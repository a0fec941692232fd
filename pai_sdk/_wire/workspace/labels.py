"""Labels of what a workspace has."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Query, String

__all__ = ["LabelKeysQuery", "NewLabels", "ResourceLabel", "VersionLabelKeysQuery"]


class ResourceLabel(Body):
    """A label."""

    keeps_empty = frozenset({"Value", "value"})

    key: String = None
    value: String = None


class NewLabels(Body):
    """The body of CreateDatasetLabels and CreateDatasetVersionLabels."""

    labels: list[ResourceLabel] = Field(default_factory=list)


class LabelKeysQuery(Query):
    """The parameters of DeleteDatasetLabels; keys are between commas."""

    label_keys: String = None


class VersionLabelKeysQuery(Query):
    """The parameters of DeleteDatasetVersionLabels; keys are between commas."""

    keys: String = None

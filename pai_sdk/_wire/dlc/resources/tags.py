"""Tags of resources."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Query, String, Strings

__all__ = ["NewTags", "Tag", "TagsChanged", "UntagQuery"]


class Tag(Body):
    """A tag."""

    keeps_empty = frozenset({"Value", "value"})

    key: String = None
    value: String = None


class NewTags(Body):
    """The body of TagResources."""

    resource_type: String = None
    resource_id: Strings = Field(default_factory=list)
    tag: list[Tag] = Field(default_factory=list)
    region_id: String = None


class UntagQuery(Query):
    """The parameters of UntagResources; the lists are JSON text."""

    resource_type: String = None
    resource_id: Strings = Field(default_factory=list)
    tag_key: Strings = Field(default_factory=list)
    all: String = None


class TagsChanged(Body):
    """The response of TagResources and UntagResources."""

    request_id: String = None

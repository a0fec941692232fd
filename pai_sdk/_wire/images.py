"""Images: the catalogue of the workspace API."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.base import Received
from pai_sdk._wire.pai.record import KeyValue
from pai_sdk._wire.pai.wire import NullableList


class ImageRecord(Received):
    """An image, as the service describes it."""

    image_id: str | None = None
    name: str | None = None
    image_uri: str | None = None
    description: str | None = None
    accessibility: str | None = None
    workspace_id: str | None = None
    user_id: str | None = None
    source_type: str | None = None
    source_id: str | None = None
    size: int | None = None
    gmt_create_time: str | None = None
    gmt_modified_time: str | None = None
    labels: NullableList[KeyValue] = Field(default_factory=list)


class ImageList(Received):
    """A page of ListImages."""

    images: NullableList[ImageRecord]
    total_count: int | None = None

"""Images on the wire: the catalogue of the workspace API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from pai_sdk.api.paging import pages
from pai_sdk.api.responses import read_items, read_model
from pai_sdk.api.transport import Transport
from pai_sdk.schemas.record import KeyValue
from pai_sdk.schemas.wire import NullableList, Received

_IMAGES = "/api/v1/images"


class ImageRecord(Received):
    """An image, as the service describes it."""

    image_id: str | None = None
    name: str | None = None
    image_uri: str | None = None
    description: str | None = None
    accessibility: str | None = None
    workspace_id: str | None = None
    gmt_create_time: str | None = None
    labels: NullableList[KeyValue] = Field(default_factory=list)


class Images:
    """The actions on images, one method each.

    Args:
        transport: to the workspace API, version `workspaces.VERSION`.

    Example:
        >>> [image.image_uri for image in session.images.list(name="pytorch")]  # doctest: +SKIP
        ['registry.cn-hangzhou.aliyuncs.com/pai-dlc/pytorch-training:1.12-gpu-py39-cu113-ubuntu20.04']
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, image_id: str) -> ImageRecord:
        """GetImage, with its labels."""
        response = self._transport.call(
            "GetImage", "GET", _IMAGES + "/{image_id}", {"image_id": image_id}, {"Verbose": "true"}
        )
        return read_model(ImageRecord, response, "GetImage", image_id=image_id)

    def list(
        self, *, name: str | None = None, labels: Sequence[str] = (), workspace_id: str | None = None
    ) -> Iterator[ImageRecord]:
        """ListImages, all pages with labels, the newest first.

        Args:
            name: only images with this text in their name.
            labels: only images that bear all of these, each written `key=value`.
            workspace_id: those of a workspace; None for the images that PAI offers to all.
        """
        query = {
            "Name": name,
            "Labels": ",".join(labels) or None,
            "WorkspaceId": workspace_id,
            "Verbose": "true",
            "SortBy": "GmtCreateTime",
            "Order": "DESC",
        }

        def fetch(number: int, size: int) -> Mapping[str, Any]:
            paged = {**query, "PageNumber": number, "PageSize": size}
            return self._transport.call("ListImages", "GET", _IMAGES, query=paged).json

        return read_items(ImageRecord, pages(fetch, "Images"), "ListImages")

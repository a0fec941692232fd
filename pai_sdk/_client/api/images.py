"""Images on the wire: the catalogue of the workspace API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pai_sdk._client.api.paging import pages
from pai_sdk._client.api.responses import read_items, read_model
from pai_sdk._client.api.transport import Transport
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.images import ImageList, ImageRecord

__all__ = ["ImageRecord", "Images"]

_IMAGES = "/api/v1/images"


class Images:
    """Actions on images; `session.images`. The transport is that of the workspace API (`workspaces.VERSION`).

    Example:
        >>> [image.image_uri for image in session.images.list(name="pytorch")]  # doctest: +SKIP
        ['registry.cn-hangzhou.aliyuncs.com/pai-dlc/pytorch-training:1.12-gpu-py39-cu113-ubuntu20.04']
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, image_id: str) -> ImageRecord:
        """Calls GetImage; returns the image with its labels."""
        response = self._transport.call(
            "GetImage", "GET", _IMAGES + "/{image_id}", {"image_id": image_id}, wire_names(verbose=True)
        )
        return read_model(ImageRecord, response, "GetImage", image_id=image_id)

    def list(
        self, *, name: str | None = None, labels: Sequence[str] = (), workspace_id: str | None = None
    ) -> Iterator[ImageRecord]:
        """Calls ListImages, all pages with labels, the newest first.

        Args:
            name: only images with this string in their name.
            labels: only images that have all of these labels, each written `key=value`.
            workspace_id: only images of this workspace; None for the images that PAI offers to all.
        """
        query = wire_names(
            name=name,
            labels=",".join(labels) or None,
            workspace_id=workspace_id,
            verbose=True,
            sort_by="GmtCreateTime",
            order="DESC",
        )

        def fetch(number: int, size: int) -> Mapping[str, Any]:
            paged = {**query, **wire_names(page_number=number, page_size=size)}
            return self._transport.call("ListImages", "GET", _IMAGES, query=paged).json

        return read_items(ImageRecord, pages(fetch, ImageList), "ListImages")

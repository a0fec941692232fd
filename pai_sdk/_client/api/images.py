"""Images on the wire: the catalogue of the workspace API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pai_sdk._client.api.resource import Resource
from pai_sdk._client.api.responses import read_model
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.images import ImageList, ImageRecord

_IMAGES = "/api/v1/images"


class Images(Resource):
    """Actions on images; `session.images`. The transport is that of the workspace API (`workspaces.VERSION`).

    Example:
        >>> [image.image_uri for image in session.images.list(name="pytorch")]  # doctest: +SKIP
        ['registry.cn-hangzhou.aliyuncs.com/pai-dlc/pytorch-training:1.12-gpu-py39-cu113-ubuntu20.04']
    """

    def get(self, image_id: str) -> ImageRecord:
        """Calls GetImage; returns the image with its labels."""
        params = {"image_id": image_id}
        response = self._call("GetImage", "GET", _IMAGES + "/{image_id}", params, wire_names(verbose=True))
        return read_model(ImageRecord, response, **params)

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
        return self._list(ImageRecord, ImageList, "ListImages", _IMAGES, query=query)

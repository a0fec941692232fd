"""Images: the catalogue, which is PAI's public images. The service keeps no images of its own."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.routes.parameters import Order, PageNumber, PageSize, read_pairs
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.images import ImageList, ImageRecord
from pai_sdk._wire.labels import label_records
from pai_sdk._wire.pai.public_images import CatalogueImage, public_images

router = APIRouter(prefix="/api/v1/images", route_class=ActionRoute)


@router.get("")
@within(LISTS)
def list_images(
    context: ContextOf,
    page_number: PageNumber = 1,
    page_size: PageSize = 10,
    name: Annotated[str | None, Query(alias="Name")] = None,
    image_uri: Annotated[str | None, Query(alias="ImageUri")] = None,
    query: Annotated[str | None, Query(alias="Query")] = None,
    labels: Annotated[str | None, Query(alias="Labels")] = None,
    verbose: Annotated[bool, Query(alias="Verbose")] = False,
    order: Order = "DESC",
) -> ImageList:
    """ListImages. Labels are shown with `Verbose`, as on PAI. A catalogue belongs to no workspace."""
    label_filter = read_pairs(labels)
    images = [
        image
        for image in public_images(context.settings.region_id)
        if label_filter.items() <= image.labels.items()
        and (name or "").lower() in image.name
        and (query or "").lower() in image.image_uri
        and image_uri in (None, image.image_uri)
    ]
    if order.upper() == "ASC":
        images.reverse()
    page = images[(page_number - 1) * page_size :][:page_size]
    records = [_image(image, verbose=verbose) for image in page]
    return ImageList(images=records, total_count=len(images))


@router.get("/{image_id}")
def get_image(
    context: ContextOf, image_id: str, verbose: Annotated[bool, Query(alias="Verbose")] = False
) -> ImageRecord:
    """GetImage."""
    for image in public_images(context.settings.region_id):
        if image.image_id == image_id:
            return _image(image, verbose=verbose)
    raise WireError(404, "IMAGE_NOT_FOUND", f"There is no image {image_id[:60]!r} here.")


def _image(image: CatalogueImage, *, verbose: bool) -> ImageRecord:
    return ImageRecord(
        image_id=image.image_id,
        name=image.name,
        image_uri=image.image_uri,
        description="",
        accessibility="PUBLIC",
        labels=label_records(image.labels) if verbose else [],
    )

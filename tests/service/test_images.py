"""The catalogue of images on the service."""

from __future__ import annotations

from typing import Any

from tests.service.services import Client

FIELDS = {"ImageId", "Name", "ImageUri", "Description", "Accessibility", "Labels"}
GPU = "system.official=true,system.supported.dlc=true,system.chipType=GPU"


def images(client: Client, **query: Any) -> list[dict[str, Any]]:
    return client.get("/images", PageSize=100, Verbose="true", **query)["Images"]


def test_images_are_filtered_by_name_labels_and_uri(service: Client) -> None:
    everything = images(service)
    assert all(image.keys() == FIELDS for image in everything)
    assert all(image["ImageUri"].endswith(image["Name"]) for image in everything)
    torch = images(service, Name="pytorch", Labels=GPU)
    assert torch
    assert all("pytorch" in image["Name"] and "gpu" in image["Name"] for image in torch)
    (one,) = images(service, ImageUri=torch[0]["ImageUri"])
    assert one == torch[0]
    assert images(service, Labels="system.supported.eas=true") == everything  # an image to train with can serve
    assert images(service, Labels="system.official=false") == []
    assert [image["ImageId"] for image in images(service, Order="ASC")] == [
        image["ImageId"] for image in reversed(everything)
    ]


def test_pages_and_the_total(service: Client) -> None:
    total = service.get("/images")["TotalCount"]
    found = [
        image["ImageId"]
        for number in range(1, total // 5 + 3)
        for image in service.get("/images", PageSize=5, PageNumber=number)["Images"]
    ]
    assert len({*found}) == len(found) == total


def test_labels_are_shown_with_verbose_only(service: Client) -> None:
    assert [image["Labels"] for image in service.get("/images", PageSize=1)["Images"]] == [[]]
    image_id = images(service)[0]["ImageId"]
    shown = service.get(f"/images/{image_id}", Verbose="true")
    assert {"Key": "system.official", "Value": "true"} in shown["Labels"]
    assert service.get(f"/images/{image_id}")["Labels"] == []


def test_what_cannot_be_found_or_read_is_refused(service: Client) -> None:
    assert service.call("GET", "/images/image-none").json()["Code"] == "IMAGE_NOT_FOUND"
    refused = service.call("GET", "/images", Labels="system.official")
    assert (refused.status_code, refused.json()["Code"]) == (400, "InvalidParameter")

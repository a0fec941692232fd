"""Images that PAI offers for training, selected by framework and version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pai_sdk._client.session.default import session_or_default
from pai_sdk._core.names.hints import did_you_mean, name_hint, nearest
from pai_sdk._core.names.keywords import checks_keywords
from pai_sdk._wire.pai.public_images import OFFICIAL, SCOPE_LABELS, public_images
from pai_sdk.errors import ApiError, ImageLookupError, InvalidInputError, NotFoundError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.session import Session

__all__ = ["ImageInfo", "ImageScope", "list_images", "retrieve"]

_FRAMEWORK = "system.framework."
_SPELLINGS = ("DeepSpeed", "ModelScope", "OneFlow", "PyTorch", "TensorFlow", "Transformers", "XGBoost")
_TAG = re.compile(r"(?P<version>[\w.]+?)(?:-(?:mkl-)?(?P<chip>cpu|gpu))?(?:-py(?P<python>[\d.]+))?(?:-.*)?")
_HAS_NO_ACTION = (404, 405, 501)


class ImageScope:
    """The purposes of images."""

    TRAINING = "training"
    INFERENCE = "inference"
    DEVELOP = "develop"


@dataclass(frozen=True)
class ImageInfo:
    """An image that PAI offers.

    Attributes:
        image_name: repository and tag.
        image_uri: what `Estimator` and `Processor` take.
        framework_name: such as `PyTorch`.
        image_scope: one of `ImageScope`.
        framework_version: such as `1.12`.
        accelerator_type: `CPU` or `GPU`.
        python_version: such as `3.9`.
    """

    image_name: str
    image_uri: str
    framework_name: str
    image_scope: str
    framework_version: str | None = None
    accelerator_type: str | None = None
    python_version: str | None = None


@checks_keywords
def retrieve(
    framework_name: str,
    framework_version: str = "latest",
    accelerator_type: str | None = "CPU",
    image_scope: str = ImageScope.TRAINING,
    session: Session | None = None,
) -> ImageInfo:
    """The image of a framework in a version.

    The catalogue is the service's, or a list of PAI's public images in this package where the service has none.

    Args:
        framework_name: such as `PyTorch`, `TensorFlow` or `XGBoost`; upper and lower case are alike.
        framework_version: such as `1.12`, which fits `1.12.1` too; `latest` for the newest.
        accelerator_type: `CPU` or `GPU`; None means `CPU`.
        image_scope: one of `ImageScope`.
        session: where to look; the default session otherwise.

    Raises:
        ImageLookupError: there is none; the message lists the existing versions.
        InvalidInputError: accelerator or scope is not known.

    Example:
        >>> from pai_sdk.session import Session
        >>> retrieve("PyTorch", "1.12", "GPU", session=Session.embedded()).image_uri  # doctest: +SKIP
        'registry.cn-hangzhou.aliyuncs.com/pai-dlc/pytorch-training:1.12-gpu-py39-cu113-ubuntu20.04'
    """
    chip = (accelerator_type or "CPU").upper()
    if chip not in ("CPU", "GPU"):
        raise InvalidInputError([Problem("accelerator_type", f"unknown value {accelerator_type!r}", "CPU or GPU")])
    of_framework = list_images(framework_name, session, image_scope) if framework_name.strip() else []
    if not of_framework:
        names = sorted({image.framework_name for image in list_images("", session, image_scope)})
        near = [name for name in names if nearest(framework_name.lower(), [name.lower()])]
        message = f"there is no image of {framework_name!r} for {image_scope}"
        hint = did_you_mean(near[:1]) or (f"available: {', '.join(names)}" if names else "")
        raise ImageLookupError([Problem("framework_name", message, hint)])
    fitting = [image for image in of_framework if image.accelerator_type == chip]
    chosen = _newest(fitting) if framework_version.lower() == "latest" else _of_version(fitting, framework_version)
    if chosen is None:
        available = ", ".join(f"{image.framework_version} ({image.accelerator_type})" for image in of_framework)
        message = f"there is no {chip} image of {framework_name} {framework_version}"
        raise ImageLookupError([Problem("framework_version", message, f"available: {available}")])
    return chosen


@checks_keywords
def list_images(
    framework_name: str, session: Session | None = None, image_scope: str = ImageScope.TRAINING
) -> list[ImageInfo]:
    """The images of a framework, as the catalogue has them.

    Args:
        framework_name: as for `retrieve`; an empty text for those of all frameworks.
        session: where to look; the default session otherwise.
        image_scope: one of `ImageScope`.

    Raises:
        InvalidInputError: the scope is not known.

    Example:
        >>> len(list_images("XGBoost"))  # doctest: +SKIP
        1
    """
    scope = image_scope.lower()
    if scope not in SCOPE_LABELS:
        hint = name_hint(scope, SCOPE_LABELS)
        raise InvalidInputError([Problem("image_scope", f"unknown value {image_scope!r}", hint)])
    framework_key = framework_name.strip().lower()
    catalogue = list(_catalogue(session_or_default(session, local=False), scope))
    images = [_image_info(name, uri, labels, scope) for name, uri, labels in catalogue]
    if not framework_key:
        return images
    # If no repository has the name of the framework, all images with the framework count: most have several.
    return [image for image in images if image.framework_name.lower() == framework_key] or [
        _image_info(name, uri, labels, scope, framework)
        for name, uri, labels in catalogue
        for framework in _frameworks(labels)
        if framework.lower() == framework_key
    ]


def image_of_version(
    framework: str, parameter: str, version: str | None, image_scope: str, session: Session | None
) -> str:
    """Returns the official GPU image of a framework; `parameter` is the name of the version in errors."""
    if not version:
        raise InvalidInputError([Problem(parameter, "is required", "a version or 'latest'; or give image_uri")])
    return retrieve(framework, version, "GPU", image_scope, session).image_uri


def _catalogue(session: Session, scope: str) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Yields name, URI and labels of the official images for a purpose."""
    try:
        for record in session.images.list(labels=[OFFICIAL, SCOPE_LABELS[scope]]):
            if record.image_uri:
                labels = {label.key: label.value or "" for label in record.labels if label.key}
                yield record.name or "", record.image_uri, labels
    except ApiError as error:
        if not (isinstance(error, NotFoundError) or error.status_code in _HAS_NO_ACTION):
            raise
        key, _, value = SCOPE_LABELS[scope].partition("=")
        for image in public_images(session.settings.region_id):
            if image.labels.get(key) == value:
                yield image.name, image.image_uri, image.labels


def _frameworks(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns the frameworks of an image with their versions."""
    return {key.removeprefix(_FRAMEWORK): value for key, value in labels.items() if key.startswith(_FRAMEWORK)}


def _image_info(
    name: str, uri: str, labels: Mapping[str, str], scope: str, framework: str | None = None
) -> ImageInfo:
    """Parses labels and tag of an image; labels take precedence."""
    # An image may have several frameworks: the one in the name of its repository counts, unless one is given.
    repository, _, tag = uri.rpartition("/")[2].partition(":")
    match = _TAG.fullmatch(tag)
    by_tag = match.groupdict() if match else {}
    versions = _frameworks(labels)
    if framework is None:
        repository_name = repository.removesuffix("-training").removesuffix("-inference")
        framework = next(
            (name for name in (*versions, *_SPELLINGS) if name.lower() == repository_name.lower()), repository_name
        )
    python = by_tag.get("python")
    if python and "." not in python:
        python = f"{python[0]}.{python[1:]}"  # py39
    return ImageInfo(
        image_name=name or f"{repository}:{tag}",
        image_uri=uri,
        framework_name=framework,
        image_scope=scope,
        framework_version=versions.get(framework) or by_tag.get("version"),
        accelerator_type=(labels.get("system.chipType") or by_tag.get("chip") or "").upper() or None,
        python_version=labels.get("system.pythonVersion") or python,
    )


def _newest(images: Iterable[ImageInfo]) -> ImageInfo | None:
    return max(images, key=lambda image: _numbers(image.framework_version), default=None)


def _of_version(images: Iterable[ImageInfo], version: str) -> ImageInfo | None:
    """Returns the image of exactly this version, otherwise the newest one with these leading numbers."""
    images = list(images)
    exact = [image for image in images if image.framework_version == version]
    numbers = _numbers(version)
    near = [image for image in images if numbers and _numbers(image.framework_version)[: len(numbers)] == numbers]
    return exact[0] if exact else _newest(near)


def _numbers(version: str | None) -> tuple[int, ...]:
    """Returns the numbers of a version, for comparison; empty without any."""
    match = re.match(r"\d+(?:\.\d+)*", version or "")
    return tuple(map(int, match[0].split("."))) if match else ()

"""Attributes by the names of SageMaker, Azure ML and Vertex AI: accepted, or an error names the replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pai_sdk.base.peer_names import attribute_hint
from pai_sdk.errors import NotOfferedAttributeError

__all__ = ["PeerAttributes", "missing_attribute"]


def missing_attribute(owner: object, name: str, instead: str | None = None) -> Any:
    """The `__getattr__` of an object, which Python calls for an attribute that was not found.

    Args:
        owner: the object.
        name: of the attribute.
        instead: what replaces it; by default, what `peer_names` says.

    Raises:
        NotOfferedAttributeError: there is a replacement.
        AttributeError: as usual, or from within a property.
    """
    kind = type(owner)
    if instead := instead or attribute_hint(kind, name):
        raise NotOfferedAttributeError(kind.__name__, name, instead)
    return object.__getattribute__(owner, name)


class PeerAttributes:
    """An object whose errors say what replaces an attribute of another SDK."""

    if not TYPE_CHECKING:
        __getattr__ = missing_attribute

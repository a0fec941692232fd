"""Attributes by the names of SageMaker, Azure ML and Vertex AI: accepted, or an error names the replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pai_sdk.base.peer_names import attribute_hint
from pai_sdk.errors import NotOfferedAttributeError

__all__ = ["PeerAttributes", "missing_attribute"]


def missing_attribute(owner: object, name: str, instead: str | None = None) -> AttributeError:
    """The error for an attribute that an object does not have.

    Args:
        owner: the object.
        name: of the attribute.
        instead: what replaces it; by default, what `peer_names` says.
    """
    kind = type(owner)
    if instead := instead or attribute_hint(kind, name):
        return NotOfferedAttributeError(kind.__name__, name, instead)
    return AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")


class PeerAttributes:
    """An object whose errors say what replaces an attribute of another SDK."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)

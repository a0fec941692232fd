"""Checks tags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pai_sdk._wire.dlc.checking.problems import BodyProblem
from pai_sdk._wire.dlc.limits import MAX_TAG_KEY, MAX_TAGS
from pai_sdk._wire.dlc.resources.tags import Tag

__all__ = ["tag_problems"]

_OF_THE_VENDOR = ("aliyun", "acs:")


def tag_problems(where: str, tags: Sequence[Tag]) -> Iterator[BodyProblem]:
    """Yields what is wrong with tags: too many, keys that are too long or the vendor's."""
    if len(tags) > MAX_TAGS:
        yield BodyProblem(where, f"has {len(tags)} tags; {MAX_TAGS} are allowed")
    for tag in tags:
        key = tag.key or ""
        if not key or len(key) > MAX_TAG_KEY:
            yield BodyProblem(
                where, f"the key {key[:40]!r} has {len(key)} characters; 1 to {MAX_TAG_KEY} are allowed"
            )
        elif key.lower().startswith(_OF_THE_VENDOR):
            yield BodyProblem(where, f"the key {key!r} begins as those of the vendor", "choose another one")

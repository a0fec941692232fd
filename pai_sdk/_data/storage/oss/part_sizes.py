"""How large files are divided into requests."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PartSizes"]

_MAX_PARTS = 9_000  # OSS allows 10,000


@dataclass(frozen=True)
class PartSizes:
    """The sizes of parts, ranges, lists and hashed trees.

    Attributes:
        part_bytes: the size of a part of an upload, and of a range of a download. Larger files are sent in parts.
        max_get_bytes: the size of the largest object that is downloaded in one request.
        page_objects: the number of objects in a page of a list, and in a request that deletes.
        quick_hash_bytes: the size of the largest tree that is hashed first, about 2 s of work; a larger one is
            compared with its manifest first, and hashed only for the remaining files.
    """

    part_bytes: int = 8 << 20
    max_get_bytes: int = 16 << 20
    page_objects: int = 1000
    quick_hash_bytes: int = 1_000_000_000

    def for_upload(self, size_bytes: int) -> int:
        """Returns the size of the parts of a file; the last one may be shorter."""
        return max(self.part_bytes, -(-size_bytes // _MAX_PARTS))

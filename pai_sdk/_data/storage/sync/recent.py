"""The trees uploaded last, and which of them is most similar to a new one.

Beside the folders of trees, each named by the hash of its content, one small object lists the newest of them, each
with a sketch: the smallest hashes of its files. Trees that share most of their files share most of their sketches.
So one request, from any machine, finds the earlier tree that is most similar to a new one.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pai_sdk._data.storage.content_hash import BLAKE3, SHA256, SMALL_BYTES, algorithm_of
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.sync.manifest import read_manifest
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import InvalidInputError, ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

_log = logging.getLogger(__name__)

_INDEX_NAME = "recent-trees.json"
_MAX_TREES = 200
_SKETCH_HASHES = 16
_HASH_DIGITS = 8
_FOLDER_NAME = re.compile(r"[0-9a-f]{16,64}")
_MAX_CANDIDATES = 3


def is_content_addressed(tree: FileTree, folder: OssUri) -> bool:
    """Returns True if the folder's name is the tree's hash, or the beginning of it."""
    return bool(_FOLDER_NAME.fullmatch(folder.name)) and tree.digest.startswith(folder.name)


@dataclass(frozen=True)
class RecentTree:
    """A tree that was uploaded: its folder's name, its sketch, and the algorithm of its larger files."""

    name: str
    sketch: frozenset[str]
    algorithm: str = SHA256  # as of the trees of earlier releases, of which the list does not say

    @classmethod
    def of(cls, tree: FileTree, folder: OssUri) -> RecentTree:
        """Returns the entry of a tree."""
        # Empty files are left out: many unrelated trees have them.
        hashes = {_short(entry.digest) for entry in tree.entries if entry.size_bytes}
        smallest = sorted(hashes, key=lambda text: text.rpartition(":")[2])[:_SKETCH_HASHES]
        larger = {algorithm_of(entry.digest) for entry in tree.entries if entry.size_bytes > SMALL_BYTES}
        return cls(folder.name, frozenset(smallest), SHA256 if SHA256 in larger else BLAKE3)


def _tree_of(row: dict[str, Any]) -> RecentTree:
    algorithm = BLAKE3 if row.get("algorithm") == BLAKE3 else SHA256
    return RecentTree(row["name"], frozenset(map(str, row["sketch"])), algorithm)


def _short(digest: str) -> str:
    """Returns the hash of a sketch: some digits, without the algorithm if it is that of earlier releases."""
    algorithm, _, digits = digest.partition(":")
    return f"{'' if algorithm == SHA256 else f'{algorithm}:'}{digits[:_HASH_DIGITS]}"


class RecentTrees:
    """The trees uploaded last beside a folder. Errors are only logged: an upload works without this list."""

    def __init__(self, client: OssClient, folder: OssUri) -> None:
        self._client = client
        self._folder = folder
        self._index = self._beside(_INDEX_NAME)

    def find_similar(
        self, tree: RecentTree, by_sha256: Callable[[], RecentTree] | None = None
    ) -> tuple[RecentTree, list[StoredFile]] | None:
        """Returns the most similar tree and its files; None when no tree shares a file.

        `by_sha256` returns the entry of the tree by its SHA-256, for trees whose larger files have no other hash.
        """
        trees = self._read() or ()
        similar = self._best_match(tree, trees)
        if similar is None and by_sha256 is not None and any(other.algorithm == SHA256 for other in trees):
            similar = self._best_match(by_sha256(), trees)
        return similar

    def _best_match(
        self, tree: RecentTree, trees: Sequence[RecentTree]
    ) -> tuple[RecentTree, list[StoredFile]] | None:
        similar = [
            other
            for other in trees
            if other.sketch & tree.sketch and other.name != tree.name and len(other.name) == len(tree.name)
        ]
        # Of equally similar trees the newest, which is the least likely to have been deleted.
        for other in sorted(similar, key=lambda other: -len(other.sketch & tree.sketch))[:_MAX_CANDIDATES]:
            try:
                return other, read_manifest(self._client, self.folder_of(other))
            except (StorageError, InvalidInputError, ValueError) as error:
                _log.info("the tree %s is not used again: %s", other.name, error)
        return None

    def add(self, tree: RecentTree, *, instead_of: RecentTree | None = None) -> None:
        """Adds an uploaded tree, in place of the one that it was copied from."""
        gone = {tree.name, instead_of.name if instead_of else ""}
        # Read again: other processes may have added trees in the meantime.
        trees = self._read()
        if trees is None:
            return
        retained = [tree, *(other for other in trees if other.name not in gone)][:_MAX_TREES]
        rows = [{"name": x.name, "sketch": sorted(x.sketch), "algorithm": x.algorithm} for x in retained]
        try:
            self._client.put_bytes(self._index, json.dumps({"trees": rows}).encode())
        except StorageError as error:
            _log.info("the list of uploaded trees could not be written: %s", error)

    def _read(self) -> list[RecentTree] | None:
        """Returns the list; empty when it is missing or invalid, None when it cannot be read."""
        try:
            rows = json.loads(self._client.get_bytes(self._index))["trees"]
            trees = [_tree_of(row) for row in rows]
        except ObjectNotFoundError:
            return []
        except StorageError as error:
            _log.info("the list of uploaded trees could not be read: %s", error)
            return None
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            _log.info("%s is not a list of trees: %r", self._index, error)
            return []
        return [tree for tree in trees if isinstance(tree.name, str) and _FOLDER_NAME.fullmatch(tree.name)]

    def folder_of(self, tree: RecentTree) -> OssUri:
        """Returns the folder of a tree."""
        return self._beside(f"{tree.name}/")

    def _beside(self, name: str) -> OssUri:
        parent = self._folder.key.rstrip("/").rpartition("/")[0]
        return replace(self._folder, key=f"{parent}/{name}" if parent else name)

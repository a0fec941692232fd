"""What is reused of earlier uploads, against the embedded store: it copies, and the copies are right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.storage.crc64 import checksum_of
from pai_sdk._data.storage.objects import PartSizes
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.transfer import download, upload_tree
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import StorageError
from tests.service.objects.conftest import Wire
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET


def client_of(wire: Wire) -> OssClient:
    return OssClient(wire.endpoint, lambda: Credentials(KEY_ID, SECRET), region=REGION)


def test_one_changed_file_is_one_file_sent(wire: Wire, tmp_path: Path) -> None:
    root = tmp_path / "src"
    root.mkdir()
    for number in range(20):
        (root / f"m{number} é.py").write_text(f"value = {number}\n")
    (root / "weights").write_bytes(os.urandom(3 << 20))  # comes in parts, so its ETag is not its MD5
    (root / "weights").chmod(0o755)
    with client_of(wire) as client:
        client.part_sizes = PartSizes(1 << 20)
        for step in range(3):  # from the second on, what is copied is a copy itself
            (root / "train.py").write_text(f"step {step}")
            tree = FileTree.scan(root)
            folder = OssUri(BUCKET, f"reuse/{tree.digest[:32]}/")
            assert upload_tree(client, tree, folder) == (1 if step else len(tree.entries))
            assert upload_tree(client, tree, folder) == 0
            assert FileTree.scan(download(client, folder, tmp_path / f"down{step}")).digest == tree.digest


def test_a_large_object_is_copied_in_parts(wire: Wire) -> None:
    source, target = OssUri(BUCKET, "reuse/source"), OssUri(BUCKET, "reuse/target")
    content = os.urandom(250_001)
    with client_of(wire) as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr("pai_sdk._data.storage.oss.parts._COPIED_PART_BYTES", 110_000)
        etag = client.put_bytes(source, content)
        known = {"etag": etag, "size_bytes": len(content), "meta": {}}
        client.parts.copy(source, target, crc64=checksum_of(content), **known)
        assert client.get_bytes(target) == content
        with pytest.raises(StorageError):
            client.parts.copy(source, target, crc64=checksum_of(content) ^ 1, **known)
        assert not client.exists(target)


def test_another_object_is_not_copied(wire: Wire) -> None:
    source, target = OssUri(BUCKET, "reuse/source"), OssUri(BUCKET, "reuse/target")
    with client_of(wire) as client:
        etag = client.put_bytes(source, b"before")
        client.put_bytes(source, b"after")
        with pytest.raises(StorageError) as caught:
            client.copy(source, target, etag=etag)
        assert caught.value.code == "PreconditionFailed"
        assert client.head(target) is None

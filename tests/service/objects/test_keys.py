"""No key, bucket, upload, header or parameter leads out of the store's folder; every key comes back as it was.

Some thousand requests in the fast suite; for the long run set `TRIAL_KEYS=100000`.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import oss2
import pytest

from pai_sdk._service.oss.store import ObjectStore
from tests.service.objects import hostile
from tests.service.objects.asking import Answer, Asking
from tests.service.objects.conftest import Wire
from tests.service.objects.serving import BUCKET, open_store

COUNT = int(os.environ.get("TRIAL_KEYS", "800"))
SEED = int(os.environ.get("TRIAL_SEED", "20261121"))
CANARY = b"this must not be read"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + COUNT // 20)]

Snapshot = dict[str, tuple[int, int, bytes]]


def snapshot(folder: Path, besides: Path) -> Snapshot:
    """All that lies in a folder, but for what lies in another."""
    found = {}
    for path in folder.rglob("*"):
        if path != besides and besides not in path.parents:
            facts = path.lstat()
            found[str(path)] = (facts.st_ino, facts.st_mode, path.read_bytes() if path.is_file() else b"")
    return found


def check_inside(root: Path) -> None:
    """What the store's folder holds has the names the store itself makes."""
    inside = r"lock|objects\.db(-wal|-shm)?|incoming|blobs|blobs/[0-9a-f]{2}|blobs/([0-9a-f]{2})/\2[0-9a-f]{30}"
    for path in root.rglob("*"):
        assert re.fullmatch(inside, str(path.relative_to(root))), path
        assert not path.is_symlink()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[ObjectStore]:
    """A store beside files that must not be read or changed through it."""
    root = tmp_path / "outside" / "store"
    for folder in (tmp_path, tmp_path / "outside"):
        folder.mkdir(exist_ok=True)
        (folder / "canary").write_bytes(CANARY)
    with open_store(root) as store:
        store.create_bucket(BUCKET)
        before = snapshot(tmp_path, root)
        yield store
        assert snapshot(tmp_path, root) == before
        check_inside(root)
        assert list((root / "incoming").iterdir()) == []


def test_every_key_is_only_a_name(watched: ObjectStore) -> None:
    """Each is put, got, listed and deleted; one that OSS does not allow is refused in all four."""
    chance = random.Random(SEED)
    asking = Asking(watched)

    async def go_through(key: str) -> None:
        path = f"/{BUCKET}/".encode() + hostile.written(key, chance)
        content = key.encode()
        put = await asking.ask("PUT", path, body=content)
        got = await asking.ask("GET", path)
        if not hostile.is_allowed(key):
            assert (put.status, got.status) == (400, 400), ascii(key)
            return
        assert (put.status, got.status, got.body) == (200, 200, content), ascii(key)
        prefix = hostile.written(key, chance).replace(b"&", b"%26").replace(b"+", b"%2B").replace(b";", b"%3B")
        listed = await asking.ask("GET", f"/{BUCKET}".encode(), b"encoding-type=url&max-keys=2&prefix=" + prefix)
        keys = [unquote(found.text or "") for found in ElementTree.fromstring(listed.body).iter("Key")]
        assert keys == [key], ascii(key)
        assert (await asking.ask("DELETE", path)).status == 204
        assert (await asking.ask("HEAD", path)).status == 404

    async def all_of_them() -> None:
        for key in hostile.keys(SEED, COUNT):
            await go_through(key)

    asyncio.run(all_of_them())


def test_nothing_else_in_a_request_leads_out_either(watched: ObjectStore) -> None:
    """Buckets, upload ids, versions, markers, sources of copies and headers of any content."""
    chance = random.Random(SEED + 1)
    asking = Asking(watched)
    bucket = BUCKET.encode()
    places = [
        lambda evil: ("GET", b"/" + evil + b"/canary", b"", {}),
        lambda evil: ("PUT", b"/" + evil, b"", {}),
        lambda evil: ("PUT", b"/" + evil + b"/" + evil, b"", {}),
        lambda evil: ("GET", evil, b"", {}),
        lambda evil: ("PUT", b"/" + bucket + b"/k", b"partNumber=1&uploadId=" + evil, {}),
        lambda evil: ("POST", b"/" + bucket + b"/k", b"uploadId=" + evil, {}),
        lambda evil: ("GET", b"/" + bucket + b"/k", b"uploadId=" + evil, {}),
        lambda evil: ("DELETE", b"/" + bucket + b"/k", b"uploadId=" + evil, {}),
        lambda evil: ("GET", b"/" + bucket + b"/k", b"versionId=" + evil, {}),
        lambda evil: ("POST", b"/" + bucket + b"/k", b"append&position=" + evil, {}),
        lambda evil: ("GET", b"/" + bucket, b"list-type=2&continuation-token=" + evil + b"&prefix=" + evil, {}),
        lambda evil: ("GET", b"/" + bucket, b"delimiter=" + evil + b"&marker=" + evil, {}),
        lambda evil: ("GET", b"/" + bucket, b"uploads&key-marker=" + evil + b"&upload-id-marker=" + evil, {}),
        lambda evil: ("PUT", b"/" + bucket + b"/copy", b"", {b"x-oss-copy-source": evil}),
        lambda evil: ("PUT", b"/" + bucket + b"/copy", b"", {b"x-oss-copy-source": b"/" + evil + b"/canary"}),
        lambda evil: ("PUT", b"/" + bucket + b"/copy", b"", {b"x-oss-copy-source": b"/" + bucket + b"/" + evil}),
        lambda evil: ("PUT", b"/" + bucket + b"/meta", b"", {b"content-type": evil, b"x-oss-meta-" + evil: evil}),
        lambda evil: ("GET", b"/" + bucket + b"/k", b"response-content-disposition=" + evil, {}),
        lambda evil: ("GET", b"/" + bucket + b"/k", b"", {b"range": evil, b"if-match": evil}),
        lambda evil: ("POST", b"/" + bucket, b"delete", {b"x-oss-callback": evil}),
    ]

    async def all_of_them() -> None:
        for number in range(max(COUNT, 3000)):
            method, path, query, headers = places[number % len(places)](hostile.noise(chance))
            answer = await asking.ask(method, path, query, headers, b"x", signed=chance.random() < 0.95)
            assert CANARY not in answer.body
            assert_well_answered(answer, method)

    asyncio.run(all_of_them())


def assert_well_answered(answer: Answer, method: str) -> None:
    assert answer.status < 500 or answer.status == 501, answer
    for name, value in answer.headers.items():
        assert not re.search(rb"[\r\n\x00]", name + value)
    if answer.status >= 400 and method != "HEAD":
        assert ElementTree.fromstring(answer.body).findtext("Code")


def test_oss2_gets_back_the_keys_it_gave(wire: Wire) -> None:
    """Over the network: put one by one, listed together, read, and deleted all at once."""
    bucket = wire.bucket(enable_crc=False)
    # requests itself changes the two that are all dots.
    made = [key for key in hostile.keys(SEED, max(200, COUNT // 10)) if hostile.is_allowed(key)]
    keys = sorted({key for key in made if key not in (".", "..")}, key=str.encode)
    for key in keys:
        bucket.put_object(key, key.encode())
    for iterator in (oss2.ObjectIterator, oss2.ObjectIteratorV2):
        assert [entry.key for entry in iterator(bucket, max_keys=1000)] == keys
    for key in keys[:: max(1, len(keys) // 200)]:
        assert bucket.get_object(key).read() == key.encode()
    unspeakable = re.compile("[\x00-\x08\x0b\x0c\x0d\x0e-\x1f\ufffe\uffff]")  # in the XML that asks for it
    speakable = [key for key in keys if not unspeakable.search(key)]
    for at in range(0, len(speakable), 1000):
        bucket.batch_delete_objects(speakable[at : at + 1000])
    left = [entry.key for entry in oss2.ObjectIterator(bucket, max_keys=1000)]
    assert left == [key for key in keys if unspeakable.search(key)]
    for key in left:
        bucket.delete_object(key)
    assert list(oss2.ObjectIterator(bucket)) == []

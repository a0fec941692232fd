"""The tests of the object store, unchanged, with every content in the object store of another service."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pai_sdk._data.storage.base import Store
from pai_sdk._service.oss.object_rows import ContentLimits
from pai_sdk._service.oss.store import ObjectStore
from tests.service.objects import serving
from tests.service.objects.conftest import Wire
from tests.service.objects.elsewhere import oss_server
from tests.service.objects.serving import BUCKET, served
from tests.service.objects.test_bucket_store import *  # noqa: F403
from tests.service.objects.test_wire_multipart import *  # noqa: F403
from tests.service.objects.test_wire_objects import *  # noqa: F403

_number = itertools.count()
NO_ROWS = ContentLimits(max_row_bytes=0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Store]]:
    """Makes stores, each with a prefix of its own."""
    with oss_server(tmp_path_factory.mktemp("oss")) as running, pytest.MonkeyPatch.context() as patch:

        def make() -> Store:
            return running.store(f"service-{next(_number)}")

        def open_store(root: Path, **options: float) -> ObjectStore:
            return ObjectStore(root, contents=make(), limits=NO_ROWS, **options)

        patch.setattr(serving, "open_store", open_store)
        yield make


@pytest.fixture(scope="module")
def wire(place: Callable[[], Store], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with served(tmp_path_factory.mktemp("store")) as (store, endpoint):
        made = Wire(endpoint, store)
        yield made
        made.close()


@pytest.fixture
def store(place: Callable[[], Store], tmp_path: Path) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path / "store", contents=place(), limits=NO_ROWS) as made:
        made.create_bucket(BUCKET)
        yield made

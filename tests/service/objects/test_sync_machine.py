"""Random changes and killed syncs, up to the embedded service's object store and down again."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.store import OssStore, Store
from pai_sdk._data.storage.uri import OssUri
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET, served
from tests.unit.data.storage.sync.sync_machine import SyncMachine


@pytest.fixture(scope="module")
def client() -> Iterator[OssClient]:
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder)) as (_, endpoint),
        OssClient(endpoint, lambda: Credentials(KEY_ID, SECRET), region=REGION) as made,
    ):
        yield made


def run_machine(client: OssClient, examples: int, steps: int) -> None:
    class OssSyncMachine(SyncMachine):
        def make_middle(self) -> Store:
            return OssStore(client, OssUri(BUCKET, f"{uuid.uuid4().hex}/"))

    run_state_machine_as_test(OssSyncMachine, settings=settings(max_examples=examples, stateful_step_count=steps))


def test_both_sides_are_equal_after_a_sync(client: OssClient) -> None:
    run_machine(client, examples=8, steps=12)

"""The CRC-64 of OSS."""

from __future__ import annotations

import logging
import sys
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pai_sdk._data.storage import crc64
from pai_sdk._data.storage.crc64 import checksum_of, combine_checksums, combine_crc64, crc64_of, has_crc64
from tests.support.waiting import PATIENCE_S


@pytest.fixture(params=[True, False])
def has_anycrc(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    if not request.param:
        monkeypatch.setitem(sys.modules, "anycrc", None)
        monkeypatch.setattr(crc64, "_first_error", threading.Lock())
    crc64._model.cache_clear()
    crc64.has_crc64.cache_clear()
    yield request.param
    crc64._model.cache_clear()
    crc64.has_crc64.cache_clear()


def test_the_checksum_of_two_contents_is_that_of_both_together() -> None:
    together = 0x995DC9BBDF1939FA  # of 123456789
    assert has_crc64()
    assert crc64_of(b"56789", crc64_of(b"1234")) == together
    assert combine_crc64(crc64_of(b"1234"), crc64_of(b"56789"), 5) == together


def test_a_machine_without_it_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "anycrc", None)
    for remembered in (crc64.has_crc64, crc64._model):
        remembered.cache_clear()
    monkeypatch.setattr(crc64, "_first_error", threading.Lock())
    together = threading.Barrier(4)

    def ask(_: int) -> bool:
        together.wait(PATIENCE_S)
        return has_crc64()

    with caplog.at_level(logging.INFO), ThreadPoolExecutor(4) as pool:
        assert [*pool.map(ask, range(4))] == [False] * 4
    assert [record.name for record in caplog.records] == ["pai_sdk._data.storage.crc64"]
    monkeypatch.undo()
    crc64.has_crc64.cache_clear()
    assert has_crc64()


@pytest.mark.parametrize("parts", [(b"", b""), (b"a", b""), (b"", b"a"), (b"1234", b"56789" * 10_001)])
def test_checksums_are_combined_also_without_anycrc(has_anycrc: bool, parts: tuple[bytes, bytes]) -> None:
    first, second = parts
    together = checksum_of(first + second)
    assert together == (crc64_of(first + second) if has_anycrc else zlib.crc32(first + second))
    assert combine_checksums(checksum_of(first), checksum_of(second), len(second)) == together
    assert checksum_of(second, checksum_of(first)) == together

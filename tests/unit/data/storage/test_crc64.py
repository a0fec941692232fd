"""The CRC-64 of OSS."""

from __future__ import annotations

import logging
import sys

import pytest

from pai_sdk._data.storage import crc64
from pai_sdk._data.storage.crc64 import combine_crc64, crc64_of, has_crc64


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
    with caplog.at_level(logging.INFO):
        assert [has_crc64(), has_crc64()] == [False, False]
    assert [record.name for record in caplog.records] == ["pai_sdk._data.storage.crc64"]
    monkeypatch.undo()
    crc64.has_crc64.cache_clear()
    assert has_crc64()

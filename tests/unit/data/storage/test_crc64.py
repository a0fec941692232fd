"""The CRC-64 of OSS."""

from __future__ import annotations

from pai_sdk._data.storage.crc64 import combine_crc64, crc64_of


def test_the_checksum_of_two_contents_is_that_of_both_together() -> None:
    together = 0x995DC9BBDF1939FA  # of 123456789
    assert crc64_of(b"56789", crc64_of(b"1234")) == together
    assert combine_crc64(crc64_of(b"1234"), crc64_of(b"56789"), 5) == together

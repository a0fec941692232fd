"""The checksums of many records, checked by one checksum of all their bytes.

CRC32C is linear: appending zeros to a message is a linear map of its checksum. So the checksum of joined messages
follows from those of the messages. The records of an event file have theirs behind them; what the checksum of a
block has to be follows from these by lookups in tables. One run of the processor's instruction over the block then
says whether every record is right. A block that fails is checked record by record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pai_sdk.run.events.writer import crc32c

__all__ = ["BlockChecksum", "header_footers", "unmasked"]

Words: TypeAlias = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = np.uint32(0xA282EAD8)
_FOLDED = 16  # rows that become one in a step


def unmasked(footers: Words) -> Words:
    """The checksums that the footers of records stand for."""
    rotated = footers - _MASK_DELTA
    found: Words = (rotated >> np.uint32(17)) | (rotated << np.uint32(15))
    return found


def header_footers(lengths: Words) -> Words:
    """The checksums that headers of records with these lengths end with, as they are stored.

    Args:
        lengths: below 2**32, so that the last four of their eight bytes are zeros.
    """
    parts = np.ascontiguousarray(lengths).view(np.uint8).reshape(-1, 4)
    checksums = _sum(_shift_table(8).take(parts + _offsets(1)), 1) ^ np.uint32(_of_zeros(8))
    found: Words = ((checksums >> np.uint32(15)) | (checksums << np.uint32(17))) + _MASK_DELTA
    return found


class BlockChecksum:
    """Computes the checksum that rows of records must have.

    Args:
        headers: of the records of one row; the same in each row.
        sizes: of the records, with header and footer.
    """

    def __init__(self, headers: Sequence[bytes], sizes: Sequence[int]) -> None:
        ends = np.cumsum(sizes)
        self._row_size = int(ends[-1])
        behind = [int(self._row_size - end) for end in ends]
        self._tables = np.concatenate([_shift_table(size + 4) for size in behind])
        self._offsets = _offsets(len(sizes))
        self._constant = 0
        for header, size, tail in zip(headers, sizes, behind, strict=True):
            payload = size - len(header) - 4  # with nothing but zeros, as which its constant counts
            self._constant ^= _shifted(_raw(header), payload + 4 + tail) ^ _shifted(
                crc32c(bytes(payload)), 4 + tail
            )

    def holds(self, rows: bytes, footers: Words, checksums: Words) -> bool:
        """Returns True when all records of some rows match their checksums.

        Args:
            rows: the bytes of all rows.
            footers: of the records, as they are stored, as an array of rows × records.
            checksums: what they stand for.
        """
        # A footer is the rest of its record: the four bytes of a number change a checksum as the number itself.
        parts = np.ascontiguousarray(footers ^ checksums).view(np.uint8)
        row_sums = _sum(self._tables.take(parts + self._offsets), 1)
        found = _folded(row_sums ^ np.uint32(self._constant), self._row_size)
        return found == _raw(rows)


def _folded(sums: Words, size: int) -> int:
    """The checksum of rows of one size, from those of the rows; neither has the constants of CRC32C."""
    while len(sums) > 1:
        missing = -len(sums) % _FOLDED
        # Zeros in front of a message do not change such a checksum.
        padded = np.concatenate([np.zeros(missing, np.uint32), sums]) if missing else sums
        parts = padded.view(np.uint8).reshape(-1, 4 * _FOLDED)
        sums = _sum(_fold_tables(size).take(parts + _offsets(_FOLDED)), 1)
        size *= _FOLDED
    return int(sums[0])


def _raw(message: bytes) -> int:
    """The linear part of a checksum."""
    return crc32c(message) ^ _of_zeros(len(message))


@lru_cache(maxsize=256)
def _of_zeros(count: int) -> int:
    return crc32c(bytes(count))


@lru_cache(maxsize=1024)
def _offsets(count: int) -> npt.NDArray[np.intp]:
    """Returns the offsets of the tables for each byte of some numbers."""
    return np.arange(4 * count, dtype=np.intp) * 256


@lru_cache(maxsize=64)
def _fold_tables(size: int) -> Words:
    return np.concatenate([_shift_table(size * rows) for rows in range(_FOLDED - 1, -1, -1)])


@lru_cache(maxsize=1024)
def _shift_table(count: int) -> Words:
    """Makes tables for appending zero bytes to a checksum: 256 entries for each byte of it."""
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    parts: Words = np.where(bits, _shifted_bits(count).reshape(4, 1, 8), np.uint32(0))
    return _sum(parts, 2).reshape(-1)


def _shifted(checksum: int, count: int) -> int:
    parts = np.array([checksum], np.uint32).view(np.uint8)
    return int(_sum(_shift_table(count).take(parts + _offsets(1)), 0))


@lru_cache(maxsize=4096)
def _shifted_bits(count: int) -> Words:
    """Returns what each of the 32 bits of a checksum becomes when zero bytes are appended."""
    if count == 0:
        single: Words = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32))
        return single
    if count == 1:
        bits: npt.NDArray[Any] = _shifted_bits(0)
        for _ in range(8):
            is_odd = (bits & np.uint32(1)).astype(bool)
            bits = np.bitwise_xor(bits >> np.uint32(1), np.where(is_odd, np.uint32(_POLYNOMIAL), np.uint32(0)))
        return bits.astype(np.uint32)
    half = _shifted_bits(count // 2)
    rest = _shifted_bits(count - count // 2)
    parts = half.view(np.uint8).reshape(32, 4)
    is_set = (parts[:, :, None] >> np.arange(8, dtype=np.uint8) & np.uint8(1)).reshape(32, 32)
    return _sum(np.where(is_set, rest, np.uint32(0)), 1)


def _sum(parts: Words, axis: int) -> Words:
    """The sum of checksums, which has no carry."""
    found: Words = np.bitwise_xor.reduce(parts, axis=axis)
    return found

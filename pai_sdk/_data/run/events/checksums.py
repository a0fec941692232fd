"""Checks the checksums of many records by one checksum of all their bytes.

CRC32C is linear: appending zeros to a message is a linear map of its checksum. So the checksum of joined messages
follows from those of the messages. The records of an event file end with their checksums; the expected checksum
of a block is computed from these with lookup tables. One run of the processor's instruction over the block then
checks every record. A block that fails is checked record by record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pai_sdk._data.run.events.writer import crc32c

UInt32Array: TypeAlias = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = np.uint32(0xA282EAD8)
_FOLDED = 16  # rows that become one in a step


def unmasked(footers: UInt32Array) -> UInt32Array:
    """Returns the checksums in the footers of records, unmasked."""
    rotated = footers - _MASK_DELTA
    checksums: UInt32Array = (rotated >> np.uint32(17)) | (rotated << np.uint32(15))
    return checksums


def header_footers(lengths: UInt32Array) -> UInt32Array:
    """Returns the masked checksums in the headers of records, whose lengths are below 2**32."""
    # So the last four of the eight bytes of a length are zeros.
    parts = np.ascontiguousarray(lengths).view(np.uint8).reshape(-1, 4)
    checksums = _sum(_shift_table(8).take(parts + _offsets(1)), 1) ^ np.uint32(_of_zeros(8))
    footers: UInt32Array = ((checksums >> np.uint32(15)) | (checksums << np.uint32(17))) + _MASK_DELTA
    return footers


class BlockChecksum:
    """Computes the checksum that rows of records must have."""

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

    def holds(self, rows: bytes, footers: UInt32Array, checksums: UInt32Array) -> bool:
        """Returns True when all records of some rows match their checksums; arrays are rows × records."""
        # `footers` are as stored, and `checksums` the same ones unmasked.
        # The footer is the end of its record. Appending four bytes to a message XORs them into its checksum.
        parts = np.ascontiguousarray(footers ^ checksums).view(np.uint8)
        row_sums = _sum(self._tables.take(parts + self._offsets), 1)
        folded = _folded(row_sums ^ np.uint32(self._constant), self._row_size)
        return folded == _raw(rows)


def _folded(sums: UInt32Array, size: int) -> int:
    """Returns the checksum of joined rows of one size from those of the rows, both without CRC32C's constants."""
    while len(sums) > 1:
        missing = -len(sums) % _FOLDED
        # Zeros in front of a message do not change such a checksum.
        padded = np.concatenate([np.zeros(missing, np.uint32), sums]) if missing else sums
        parts = padded.view(np.uint8).reshape(-1, 4 * _FOLDED)
        sums = _sum(_fold_tables(size).take(parts + _offsets(_FOLDED)), 1)
        size *= _FOLDED
    return int(sums[0])


def _raw(message: bytes) -> int:
    """Returns the linear part of a checksum."""
    return crc32c(message) ^ _of_zeros(len(message))


@lru_cache(maxsize=256)
def _of_zeros(count: int) -> int:
    return crc32c(bytes(count))


@lru_cache(maxsize=1024)
def _offsets(count: int) -> npt.NDArray[np.intp]:
    """Returns the offsets of the tables for each byte of some numbers."""
    return np.arange(4 * count, dtype=np.intp) * 256


@lru_cache(maxsize=64)
def _fold_tables(size: int) -> UInt32Array:
    return np.concatenate([_shift_table(size * rows) for rows in range(_FOLDED - 1, -1, -1)])


@lru_cache(maxsize=1024)
def _shift_table(count: int) -> UInt32Array:
    """Returns tables for appending zero bytes to a checksum: 256 entries for each byte of it."""
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    parts: UInt32Array = np.where(bits, _shifted_bits(count).reshape(4, 1, 8), np.uint32(0))
    return _sum(parts, 2).reshape(-1)


def _shifted(checksum: int, count: int) -> int:
    parts = np.array([checksum], np.uint32).view(np.uint8)
    return int(_sum(_shift_table(count).take(parts + _offsets(1)), 0))


@lru_cache(maxsize=4096)
def _shifted_bits(count: int) -> UInt32Array:
    """Returns the value of each of the 32 bits of a checksum after zero bytes are appended."""
    if count == 0:
        single: UInt32Array = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32))
        return single
    if count == 1:
        bits: npt.NDArray[Any] = _shifted_bits(0)
        for _ in range(8):
            is_odd = (bits & np.uint32(1)).astype(bool)
            bits = np.bitwise_xor(bits >> np.uint32(1), np.where(is_odd, np.uint32(_POLYNOMIAL), np.uint32(0)))
        return bits.astype(np.uint32)
    first_half = _shifted_bits(count // 2)
    second_half = _shifted_bits(count - count // 2)
    parts = first_half.view(np.uint8).reshape(32, 4)
    is_set = (parts[:, :, None] >> np.arange(8, dtype=np.uint8) & np.uint8(1)).reshape(32, 32)
    return _sum(np.where(is_set, second_half, np.uint32(0)), 1)


def _sum(parts: UInt32Array, axis: int) -> UInt32Array:
    """Returns the sum of checksums: XOR, without carry."""
    total: UInt32Array = np.bitwise_xor.reduce(parts, axis=axis)
    return total

"""The names of a trace's files and folders, and the frame of their content."""

from __future__ import annotations

import io

import pytest

from pai_sdk._data.trace.trace_files import commit_name, parse_attempt, parse_partitions

pytestmark = pytest.mark.interpreter


def test_a_commit_has_the_number_and_the_size_of_its_blocks() -> None:
    assert commit_name("rank0-a-b-c", [1000, 24]) == "rank0-a-b-c-2blocks-1024bytes-committed.parquet"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "run=r1/rank3-20261122T171801000000-20261122T171902000000-a1-00000.parquet",
            (3, "20261122T171801000000"),
        ),
        ("run=r1/other.parquet", (None, None)),
    ],
)
def test_a_name_has_its_rank_and_its_attempt(path: str, expected: tuple[int | None, str | None]) -> None:
    assert parse_attempt(path) == expected


def test_partitions_are_the_folders_of_a_path() -> None:
    assert parse_partitions("dt=20261122/run=r1/rank0.parquet") == {"dt": "20261122", "run": "r1"}


def test_a_frame_is_read_as_it_was_written() -> None:
    pytest.importorskip("google_crc32c")
    from pai_sdk._data.trace.frames import framed_content, unframed_chunks

    frame = b"".join(framed_content([b"hel", b"lo"], chunk_bytes=2))
    assert b"".join(unframed_chunks(io.BytesIO(frame).read)) == b"hello"

"""The levels and the times of log lines, in the formats of usual programs."""

from __future__ import annotations

import pytest

from pai_sdk._data.logs.levels import DEBUG, ERROR, INFO, NONE, WARNING, LevelScanner
from pai_sdk._data.logs.stamps import stamp_of

LINES = [
    (INFO, "2024-01-01 12:00:00,123 - root - INFO - 0 ERROR lines"),
    (ERROR, "ERROR:root:bad"),
    (ERROR, "Traceback (most recent call last):"),
    (ERROR, '  File "x", line 1'),
    (ERROR, "KeyboardInterrupt"),
    (NONE, "plain"),
    (WARNING, "[2024-01-01] [WARNING] slow"),
    (WARNING, "  more"),
    (ERROR, "E1129 12:00:00.123456 12 f.cc:3] glog"),
    (WARNING, "[rank0]:W1129 12:00:00.123000 torch/x.py:1] torch"),
    (ERROR, '{"time": 1, "level": "error", "msg": "x"}'),
    (INFO, '{"levelname":"INFO"}'),
    (WARNING, "ts=1 level=warn msg=x"),
    (WARNING, "/x/y.py:12: UserWarning: careful"),
    (WARNING, "  warnings.warn("),
    (ERROR, "2024-01-01 12:00:00.123456: E tensorflow/core x"),
    (INFO, "[12:00:00] INFO     rich"),
    (WARNING, "           WARNING  rich without a time"),
    (NONE, "mean error 0.3 FORWARD INFORM Error: 3"),
    (DEBUG, "2024-01-01 12:00:00.000 | DEBUG    | a:b - loguru"),
    (ERROR, "[rank0]: Traceback (most recent call last):"),
    (ERROR, '[rank0]:   File "x"'),
    (ERROR, "[rank0]: torch.OutOfMemoryError: CUDA"),
    (NONE, "x" * 300 + " ERROR"),
    (ERROR, "x.c:3:4: error: bad"),
]


@pytest.mark.parametrize("minimum", [DEBUG, INFO, WARNING, ERROR])
@pytest.mark.parametrize("parts", [1, 2, 7, len(LINES)])
def test_lines_of_a_level(minimum: int, parts: int) -> None:
    """The result is the same however the log is divided."""
    scanner, numbers, first = LevelScanner(minimum), list[int](), 0
    size = -(-len(LINES) // parts)
    for start in range(0, len(LINES), size):
        part = "".join(f"{text}\n" for _, text in LINES[start : start + size]).encode()
        numbers += [first + number for number in scanner.lines(part)]
        first += part.count(b"\n")
    assert numbers == [number for number, (level, _) in enumerate(LINES) if level >= minimum]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"2026-01-01 20:30:05,250 INFO x", 1_767_268_805.25),
        (b"[2026-01-01T05:45:05.5+05:45] x", 1_767_268_805.5),
        (b"I0101 12:00:04.000001 1 f.cc:3] x", 1_767_268_804.000001),
        (b"INFO 01-01 12:00:03 [x.py:1] x", 1_767_268_803.0),
        (b'{"time": "2026-01-01 12:00:06.000"}', 1_767_268_806.0),
        (b"12:00:05 within its second", 1_767_268_805.5),
        (b"00:07:33 remaining", None),
        (b"no time", None),
    ],
)
def test_the_time_of_a_line_is_near_the_record(line: bytes, expected: float | None) -> None:
    found = stamp_of(line, 1_767_268_805.5)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-6))

"""The file of messages belongs to tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.messages import read_golden

ROOT = Path(__file__).resolve().parents[2]


def test_each_message_has_its_test() -> None:
    messages = read_golden()
    assert len(messages) > 100
    for test in messages:
        path, *_, name = test.partition("[")[0].split("::")
        assert re.search(rf"\bdef {name}\(", (ROOT / path).read_text(encoding="utf-8")), test

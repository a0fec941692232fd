"""The short form of `python -m tests.trials transfer_growth`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trials import transfer_growth


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process's memory is in /proc")
@pytest.mark.parametrize(
    ("act", "sizes"), [(transfer_growth.objects, (1, 300)), (transfer_growth.files, (10, 1_500))]
)
def test_memory_does_not_grow_with_what_is_sent(
    act: Callable[..., list[dict[str, float]]], sizes: tuple[int, int], tmp_path: Path
) -> None:
    small, large = act(sizes, tmp_path)
    assert large["size"] > 100 * small["size"]
    assert large["more_mib"] < small["more_mib"] + 32

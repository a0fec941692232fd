"""How long installed requirements serve other jobs."""

from __future__ import annotations

import pytest

from pai_sdk._host.agent.requirement_lists import EXACT, reuse_period

DAY = "1970-01-02"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("numpy==1.26.4", EXACT),
        (
            "numpy == 1.26.4 ; python_version > '3.8'  # why\n\n# more\nrich===13.1\ntorch[cuda]==2.1.0+cu118",
            EXACT,
        ),
        ("--index-url=https://me:x@index.example.com/simple\n--no-index\nnumpy==1.26.4", EXACT),
        ("numpy==1.26.4 \\\n    --hash=sha256:0a1b --hash=sha256:2c3d", EXACT),
        ("tiny @ https://example.com/tiny-1.0-py3-none-any.whl#sha256=0a1b", EXACT),
        ("git+https://example.com/tiny.git@0123456789012345678901234567890123456789", EXACT),
        ("numpy", DAY),
        ("numpy==1.*", DAY),
        ("numpy>=1,==1.26.4", DAY),
        ("numpy~=1.26", DAY),
        ("--pre\nnumpy==1.26.4", DAY),
        ("https://example.com/tiny-1.0-py3-none-any.whl", DAY),
        ("tiny @ git+https://example.com/tiny.git@main", DAY),
        ("rich==13.1\nnumpy", DAY),
        ("./tiny-1.0-py3-none-any.whl", ""),
        ("tiny-1.0-py3-none-any.whl", ""),
        ("wheels/tiny", ""),
        ("tiny @ ./tiny", ""),
        ("tiny @ file:///srv/tiny", ""),
        ("~/tiny", ""),
        ("-e git+https://example.com/tiny.git", ""),
        ("-r more.txt", ""),
        ("-rmore.txt", ""),
        ("--constraint more.txt\nnumpy==1.26.4", ""),
        ("--find-links=/ml/input/data/wheels\ntiny==1.0", ""),
        ("tiny==${VERSION}", ""),
    ],
)
def test_how_long_a_list_is_kept(lines: str, expected: str) -> None:
    assert reuse_period(["rich==13.1\n", lines], now=86400.0) == expected


def test_exact_versions_last_and_files_are_not_reused() -> None:
    periods = [reuse_period([line], now=0) for line in ("numpy==1.26.4", "rich>=13", "./mine.whl")]
    assert periods == ["exact", "1970-01-01", ""]

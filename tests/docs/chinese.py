"""Keeps the Chinese pages beside the English ones.

A Chinese page has the blocks of the English page, and records the version of that page that its text follows.
`python -m tests.docs.chinese` lists the pages whose English page has changed since. After docs/zh/errors.md was
revised, `python -m tests.docs.chinese errors` copies the blocks and renews the record.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

__all__ = ["DOCS", "PAGES", "blocks", "english_of", "has_current_text", "renewed"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "zh").glob("*.md"))
_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_RECORD = re.compile(r"^<!-- English:(?: [0-9a-f]+)? -->$", re.MULTILINE)


def blocks(text: str) -> list[str]:
    """Returns the fenced blocks of a page."""
    return _BLOCK.findall(text)


def english_of(page: Path) -> str:
    """Returns the text of the English page."""
    return (DOCS / page.name).read_text(encoding="utf-8")


def has_current_text(page: Path) -> bool:
    """Returns True if the Chinese page was revised after the last change of the English one."""
    return _record_of(english_of(page)) in page.read_text(encoding="utf-8").splitlines()


def renewed(text: str, english: str) -> str:
    """Returns a Chinese page with the blocks of the English page and the record of its version.

    Raises:
        ValueError: the number of blocks differs, or the line of the record is missing.
    """
    sources = iter(blocks(english))
    if len(blocks(text)) != len(blocks(english)):
        raise ValueError(f"{len(blocks(text))} blocks, and {len(blocks(english))} in English")
    if len(_RECORD.findall(text)) != 1:
        raise ValueError("one line must be <!-- English: -->, which this command fills in")
    return _RECORD.sub(_record_of(english), _BLOCK.sub(lambda _: next(sources), text))


def _record_of(english: str) -> str:
    return f"<!-- English: {hashlib.sha256(english.encode()).hexdigest()[:16]} -->"


def main(names: list[str]) -> int:
    """Renews the named pages, or lists those to revise; returns the exit code."""
    if not names:
        stale = [page for page in PAGES if not has_current_text(page)]
        print("\n".join(f"revise docs/zh/{page.name}" for page in stale) or "all Chinese pages are current")
        return 1 if stale else 0
    for name in names:
        page = DOCS / "zh" / f"{Path(name).stem}.md"
        try:
            page.write_text(renewed(page.read_text(encoding="utf-8"), english_of(page)), encoding="utf-8")
        except ValueError as error:
            print(f"docs/zh/{page.name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

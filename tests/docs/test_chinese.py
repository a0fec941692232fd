"""The Chinese pages say what the English ones say now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.chinese import PAGES, blocks, english_of, has_current_text, renewed

ENGLISH = "# Errors\n\n```python\nprint(2)\n```\n"
CHINESE = "# 错误\n\n<!-- English: 00 -->\n\n```python\nprint(1)\n```\n"


def test_what_people_begin_with_is_there_in_chinese() -> None:
    assert {page.stem for page in PAGES} >= {"index", "migrating", "alipai-differences", "errors", "local"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_chinese_page_follows_the_english_one(page: Path) -> None:
    assert blocks(page.read_text(encoding="utf-8")) == blocks(english_of(page))
    command = f"python -m tests.docs.chinese {page.stem}"
    assert has_current_text(page), f"docs/{page.name} has changed: revise docs/zh/{page.name}, then run  {command}"


def test_a_page_is_renewed_with_the_blocks_of_the_english_one() -> None:
    page = renewed(CHINESE, ENGLISH)
    assert blocks(page) == blocks(ENGLISH)
    assert page.startswith("# 错误\n\n<!-- English: ")
    assert renewed(page, ENGLISH) == page != renewed(page, ENGLISH + "One more sentence.\n")


@pytest.mark.parametrize("page", [CHINESE + "```text\n```\n", CHINESE.replace("English", "Englisch")])
def test_a_page_that_cannot_be_renewed_is_an_error(page: str) -> None:
    with pytest.raises(ValueError):
        renewed(page, ENGLISH)

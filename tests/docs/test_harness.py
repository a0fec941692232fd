"""The harness itself: what runs, what does not, and that a broken example cannot hide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.leftovers import end_processes_of, has_ended

pytestmark = pytest.mark.timeout(600)

RunPage: TypeAlias = Callable[[Path], tuple[int, str]]

NOTEBOOK = 'The examples need `pip install ".[service,notebook]"`\n\n'
WORKS = {
    "one namespace, top to bottom": "```python\na = 1\n```\n\ntext\n\n```python\nassert a == 1\n```\n",
    "a file for later blocks": (
        '```python title="src/hello.py"\nword = "hi"\n```\n'
        '```python\nimport sys\nsys.path.insert(0, "src")\nimport hello\nassert hello.word == "hi"\n```\n'
    ),
    "a doctest": "```python\n>>> 1 + 1\n2\n```\n",
    "a reason not to run": "<!-- norun: needs an account -->\n```python\nraise SystemExit(1)\n```\n",
    "other languages": '```json\n{"a":\n```\n\n```\nplain\n```\n',
    "no command of ours": "```bash\nfalse\n```\n",
    "a package that the page installs": (
        'The examples need `pip install ".[service]" pandas`\n\n```python\nimport pandas\n```\n'
        '```bash\npai-sdk() { "$@"; }\npai-sdk python -c "import pandas"\n```\n'
    ),
    "a cell of a notebook": (
        f"{NOTEBOOK}```ipython\n%load_ext pai_sdk\na = 1\n```\n\n```python\nassert a == 1\n```\n"
    ),
    "a promised exit status": "```console\n$ pai-sdk() { return $1; }\n$ pai-sdk 100 # exit 100\ntext\n```\n",
    "a command over two lines": "```console\n$ pai-sdk() { [ $# = 2 ]; }\n$ pai-sdk a \\\n    b\n```\n",
}
FAILS = {
    "an exception": ("text\n\n```python\na = 1\nraise ValueError('boom')\n```\n", 'page.md", line 5'),
    "what does not compile": ("<!-- norun: needs an account -->\n```python\nx = = 1\n```\n", 'page.md", line 3'),
    "a norun without its reason": ("<!-- norun: -->\n```python\nraise ValueError('it ran')\n```\n", "it ran"),
    "a package of no extra that is named": (
        "Later: `pip install pandas`\n```python\nimport pandas\n```\n",
        "No module named 'pandas'",
    ),
    "a package that a command needs": (
        '```bash\npai-sdk() { "$@"; }\npai-sdk python -c "import pandas"\n```\n',
        "No module named 'pandas'",
    ),
    "a cell of a notebook": (f"{NOTEBOOK}```ipython\n%no_such_magic\n```\n", "no_such_magic"),
    "a doctest": ("```python\n>>> 1 + 1\n3\n```\n", "Expected"),
    "a command": (
        "\n```console\n$ true\n$ pai-sdk() { return 3; }\n$ pai-sdk ps\n```\n",
        "page.md:5: $ pai-sdk ps ended with 3, not 0",
    ),
    "a success that was to be a failure": (
        "```console\n$ pai-sdk() { return 0; }\n$ pai-sdk ps # exit 100\n```\n",
        "ended with 0, not 100",
    ),
    "a line in the middle of bash": ("```bash\npai-sdk() { false; }\npai-sdk ps\ntrue\n```\n", "page.md:1"),
    "a shell command that does not parse": ("```bash\nif true; then\n```\n", "syntax error"),
    "a file outside": ('```python title="../x.py"\n```\n', "lies beside it"),
}


@pytest.mark.parametrize("text", WORKS.values(), ids=WORKS)
def test_what_works(text: str, fresh_place: Path, run_page: RunPage) -> None:
    status, said = run_page(_page(text, fresh_place))
    assert status == 0, said


@pytest.mark.parametrize(("text", "told"), FAILS.values(), ids=FAILS)
def test_what_fails_is_told(text: str, told: str, fresh_place: Path, run_page: RunPage) -> None:
    status, said = run_page(_page(text, fresh_place))
    assert status != 0
    assert told in said


def test_what_a_page_leaves_running_is_ended(fresh_place: Path, clean_home: Path, run_page: RunPage) -> None:
    page = _page("```bash\npai-sdk() { sleep 1000; }\npai-sdk serve &\necho $! >pid\n```\n", fresh_place)
    status, said = run_page(page)
    assert status == 0, said
    pid = int((fresh_place / "pid").read_text())
    assert not has_ended(pid)
    end_processes_of(clean_home)
    assert has_ended(pid)


def _page(text: str, folder: Path) -> Path:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return page

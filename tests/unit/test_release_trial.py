"""The trial of a release: its checklist, and what it reads from the README."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docker.release import STEPS, Readme

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_lists_the_steps_that_the_script_takes() -> None:
    page = (ROOT / "docs" / "contributing" / "release.md").read_text(encoding="utf-8")
    assert re.findall(r"^- (.*)$", page, re.MULTILINE) == [*STEPS]


def test_the_readme_says_all_that_a_user_types() -> None:
    readme = Readme((ROOT / "README.md").read_text(encoding="utf-8"))
    assert "make demo" in readme.commands
    assert [command for command in readme.typed if command.startswith("pip install")] != []
    assert any(command.startswith("pai-sdk demo") for command in readme.typed)
    assert readme.files
    compile(readme.program, "README.md", "exec")


def test_what_is_typed_and_what_is_only_shown() -> None:
    readme = Readme(
        'Run `pip install "x[service]"`, then `pai-sdk demo`; `pai-sdk demo` again, or `pai_sdk`.\n'
        "```bash\nmake demo  # now\n\n# later\nmake test\n```\n"
        '```python title="src/a.py"\nprint(1)\n```\n```python\nprint(2)\n```\n```text\npai-sdk ps\n```\n'
        "```console\n$ pai-sdk ps\nJOB  STATUS\n```\n"
    )
    assert readme.commands == ["make demo", "make test", "pai-sdk ps"]
    assert readme.typed == ['pip install "x[service]"', "pai-sdk demo"]
    assert (readme.files, readme.program) == ({"src/a.py": "print(1)\n"}, "print(2)\n")

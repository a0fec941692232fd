"""Each page names what its examples need, and they run in an environment with exactly that."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

from pai_sdk._core.extras import DISTRIBUTION
from tests.docs.environment import distributions_of, make_environment, needed_by

ROOT = Path(__file__).resolve().parents[2]
LINE = 'The examples need `pip install ".[service,tune]" pandas` in the clone ([extras](extras.md)).'
# Of these pages, the program "before" needs the other library.
OTHERS = {"from-azure-ml", "from-sagemaker", "from-submitit", "from-trackers", "from-vertex", "migrating"}
PAGES = [ROOT / "README.md", *sorted({*(ROOT / "docs").rglob("*.md")} - {*(ROOT / "docs" / "zh").iterdir()})]
_BLOCK = re.compile(r"^ *```python[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"pip install ([^`\n#]+)|requirements=(\[[^]]*\])")


def modules_of(block: str) -> Iterator[str]:
    """Yields the modules that a block imports, wherever they stand."""
    for node in ast.walk(ast.parse(textwrap.dedent(block))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def missing_in(text: str) -> list[str]:
    """Returns the modules that the blocks of a page import, and that it does not tell its reader to install."""
    files = {Path(name).stem for name in re.findall(r'title="([^"]+\.py)"', text)}
    named = re.findall(r"[\w-]+", " ".join("".join(words) for words in _NAMED.findall(text)))
    blocks = [block for block in _BLOCK.findall(text) if ">>>" not in block]
    imports = {name.partition(".")[0] for block in blocks for name in modules_of(block)}
    installed = installed_by(tuple(needed_by(text)))
    return sorted(imports - {"pai_sdk", *sys.stdlib_module_names, *files, *named} - installed)


@cache
def installed_by(requirements: tuple[str, ...]) -> set[str]:
    """Returns the modules of the distributions that these requirements install."""
    allowed = distributions_of(requirements)
    return {
        module
        for module, names in packages_distributions().items()
        if not allowed.isdisjoint(re.sub(r"[-_.]+", "-", name).lower() for name in names)
    }


def test_the_pages_name_what_their_blocks_import() -> None:
    pages = {page.name: page.read_text(encoding="utf-8") for page in PAGES if page.stem not in OTHERS}
    assert {name: missing for name, text in pages.items() if (missing := missing_in(text))} == {}


def test_the_check_sees_an_import() -> None:
    assert missing_in("# Title\n\n```python\nimport optuna, numpy\n```\n") == ["optuna"]


def test_the_line_is_read_at_the_top_only() -> None:
    assert needed_by(f"# Title\n\n{LINE}\n") == [f"{DISTRIBUTION}[service,tune]", "pandas"]
    assert needed_by("# Title\n" + "\n" * 20 + LINE) == needed_by("# Title\n") == [f"{DISTRIBUTION}[service]"]


def test_the_line_has_one_form() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line.startswith("The examples need")]
        assert lines == [LINE.replace(LINE.split("`")[1], line.split("`")[1]) for line in lines[:1]], page
        assert bool(lines) == (needed_by(text) != needed_by("")), page


def test_an_environment_has_what_is_named_and_nothing_else(tmp_path: Path) -> None:
    needed = [f"{DISTRIBUTION}[service,tune]", "pandas"]
    python = make_environment(tmp_path / "environment", needed)
    program = "import json, importlib.metadata as m; print(json.dumps([each.name for each in m.distributions()]))"
    listed = json.loads(subprocess.check_output([python, "-c", program], text=True, cwd=tmp_path))
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in listed}
    assert {"optuna", "pandas", "numpy", "sybil"} <= names
    assert names - {"crcmod-plus"} == distributions_of([*needed, "sybil", "pip"])
    program = "import pandas, optuna, pai_sdk, pyarrow"
    done = subprocess.run([python, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "No module named 'pyarrow'" in done.stderr

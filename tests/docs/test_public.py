"""The page of public names agrees with the code, the reference, and what the documentation imports."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pai_sdk
from pai_sdk._core.names import import_paths
from tests.support.measuring import measure

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(pai_sdk.__file__).parent
PAGE = ROOT / "docs" / "reference" / "public.md"
DOORS, OTHERS, FORMER = PAGE.read_text(encoding="utf-8").split("\n## ")
ROWS = re.findall(r"^\| `(pai_sdk[\w.]*)` \|", DOORS + OTHERS, re.MULTILINE)
IMPORT = re.compile(r"^ *from pai_sdk[\w.]* import (?:\([^)]*\)|[^\n]+)|^ *import pai_sdk[\w.]*", re.MULTILINE)


@cache
def public() -> dict[str, frozenset[str]]:
    """Each public module with its names."""
    return {module: frozenset(import_module(module).__all__) for module in ROWS}


def imported(text: str) -> Iterator[tuple[str, str]]:
    """Module and name of each import of ours in a text, in code blocks as in sentences."""
    for statement in IMPORT.findall(text):
        line = statement.split("`")[0].removesuffix('\\n",')
        for node in ast.parse(textwrap.dedent(line)).body:
            if isinstance(node, ast.ImportFrom):
                yield from ((str(node.module), alias.name) for alias in node.names)


def pages() -> Iterator[tuple[Path, str]]:
    for page in [*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")]:
        yield page, page.read_text(encoding="utf-8")
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        yield notebook, "\n".join("".join(cell["source"]) for cell in cells)


def test_every_name_on_the_page_is_there() -> None:
    assert len(ROWS) == len({*ROWS}) > 30
    missing = [
        f"{module}.{name}"
        for module, names in public().items()
        for name in names
        if getattr(import_module(module), name, None) is None
    ]
    assert missing == []


def test_what_the_documentation_imports_is_public() -> None:
    unknown = {
        f"{page.name}: {module}.{name}"
        for page, text in pages()
        for module, name in imported(text)
        if name not in public().get(module, ()) and f"{module}.{name}" not in public()
    }
    assert unknown == set()


def test_what_the_reference_describes_has_a_public_path() -> None:
    known = [getattr(import_module(module), name) for module, names in public().items() for name in names]
    entries = [
        entry
        for page in PAGE.parent.glob("*.md")
        for entry in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    hidden = [
        entry for entry in entries if not all(any(one is each for each in known) for one in described(entry))
    ]
    assert hidden == []


def described(entry: str) -> list[Any]:
    """What an entry of the reference describes: one thing, or all names of a module."""
    module, _, name = entry.rpartition(".")
    found = getattr(import_module(module), name)
    return [getattr(found, each) for each in found.__all__] if isinstance(found, ModuleType) else [found]


def test_the_first_table_has_the_modules_at_the_top_of_the_package() -> None:
    at_the_top = {f"pai_sdk.{path.stem}" for path in PACKAGE.glob("*.py") if not path.stem.startswith("_")}
    assert {*measure.public_modules(DOORS)} == {"pai_sdk", *at_the_top}


def test_public_modules_need_no_import_of_their_own() -> None:
    names = [module for module in ROWS if module.count(".") == 1]
    code = f"import pai_sdk\nfor name in {names}: assert eval(name).__all__, name"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def test_the_last_table_has_the_former_paths() -> None:
    rows = re.findall(r"^\| `(pai_sdk[\w.]*)` \| (.+) \|$", FORMER, re.MULTILINE)
    paths = {f"pai_sdk.{path}": module for module, cell in rows for path in re.findall(r"`([\w.]+)`", cell)}
    assert paths == import_paths.FORMER


def test_files_that_pages_name_exist() -> None:
    path = re.compile(r"`(?:pai_sdk/)?((?:_(?:client|core|data|host|service|wire)|alipai|tests)/[\w/.]*\w)/?`")
    missing = {
        f"{page.name}: {name}"
        for page, text in [*pages(), (ROOT / "CONTRIBUTING.md", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))]
        for name in path.findall(text)
        if not ((ROOT if name.startswith("tests/") else PACKAGE) / name).exists()
    }
    assert missing == set()


# Words that are classes of ours only by chance: a header of HTTP, reason codes, fields of the API.
OTHER_WORDS = {
    # of systemd and of Optuna
    "Description",
    "Worker",  # a role
    "Environment",
    "GridSampler",
    "Jobs",
    "Service",
    "AlgorithmSpec",
    "AlgorithmVersion",
    "Requirements",
    "Scheduler",
    "Host",
    "ProgressDefinitions",
    "Settings",
    "UserVpc",
    "StagingFailed",
    "Statement",
    # of the API of DLC, and its options, which are in the door of jobs only
    "CodeSource",
    "DlcOptions",
    "ImageConfig",
    "JobType",
    "ResourceConfig",
}
INTERNAL = {
    "architecture.md",
    "contributing",
    # These are about other packages.
    "migrating.md",
    "alipai-differences.md",
    "alipai-names.md",
    "from-dlc.md",
    "dlc-command.md",
    "from-sagemaker.md",
    "from-azure-ml.md",
    "from-vertex.md",
    "from-submitit.md",
    "from-skypilot.md",
    "from-hf-jobs.md",
    "from-trackers.md",
}


@cache
def classes() -> dict[str, frozenset[type]]:
    """All classes of the package by name."""
    found: dict[str, frozenset[type]] = {}
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(["pai_sdk", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")
        if "demo_code" in path.parts or path.stem == "__main__":
            continue
        for name, one in vars(import_module(module)).items():
            if isinstance(one, type) and one.__module__.startswith("pai_sdk") and not name.startswith("_"):
                found[name] = found.get(name, frozenset()) | {one}
    return found


def test_types_that_the_documentation_names_can_be_imported_from_the_package() -> None:
    unknown = {
        f"{page.name}: {word}"
        for page, text in pages()
        if page.suffix == ".md" and INTERNAL.isdisjoint(page.parts)
        for span in re.findall(r"```.*?```|`[^`\n]+`", re.sub(r"^:::.*$", "", text, flags=re.MULTILINE), re.DOTALL)
        for word in re.findall(r"(?<![\w.\-/\"])[A-Z][a-zA-Z]*[a-z][a-zA-Z]*\b", span)
        if word in classes() and word not in OTHER_WORDS and getattr(pai_sdk, word, None) not in classes()[word]
    }
    assert unknown == set()
    assert len(classes()) > 500

"""The tables of the pages "Coming from …" and the hints of the code name the same things."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pai_sdk
from pai_sdk import AlgorithmEstimator, Estimator, Processor, Session, TrainingJob, Tuner
from pai_sdk._core.names.peer_imports import NAMES
from pai_sdk._core.names.peer_modules import MODULES
from pai_sdk._core.names.peer_names import ATTRIBUTES, GUESSES, KEYWORDS, SELDOM
from pai_sdk.alipai.member_aliases import ALIASES
from pai_sdk.alipai.session_names import SessionAliases

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Of other tools, such as launchers and trackers, no name is accepted: their pages only compare.
TOOLS = {"from-hf-jobs", "from-skypilot", "from-submitit", "from-trackers"}
PAGES = sorted(page for page in DOCS.glob("from-*.md") if page.stem not in TOOLS)
KINDS = (Estimator, AlgorithmEstimator, Processor, TrainingJob, Session)
CALLS = (
    *KINDS,
    Estimator.fit,
    Processor.run,
    TrainingJob.wait,
    TrainingJob.download,
    SessionAliases.upload_data,
    Tuner,
)
PARAMETERS = {name for call in CALLS for name in inspect.signature(call).parameters}
ATTRIBUTES_HERE = {name for kind in (*KINDS, *ALIASES.values()) for name in dir(kind)} | {
    name for each in ATTRIBUTES.values() for name in each
}
# Variables, modules and methods in the first column.
VARIABLES = {
    "aiplatform",
    "log",
    "client",
    "estimator",
    "fit",
    "job",
    "mlflow",
    "name",
    "path",
    "processor",
    "run",
    "sagemaker_session",
    "trainer",
}
# Attributes of what an attribute gives, which is an error already; and `image_uris`.
INNER = {"begin_cancel", "get", "list", "download", "retrieve", "stream", "create_or_update", "log_metric"}
# On other pages, or too seldom for a row.
ELSEWHERE = {
    "credential_config",
    "default_training_inputs",
    "supported_instance_type",
    "local_path",
    "oss_bucket",
    "training_job_id",
    "output_dir",
    "resume_from",
    "resume_from_checkpoint",
    "spot",
    "arguments",
    "aiplatform",
    "log",
}


def rows(page: Path) -> Iterator[str]:
    """The code in the first cells of the tables."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            yield from re.findall(r"`([^`]+)`", line.split(" | ")[0])


def tree_of(code: str) -> ast.AST | None:
    """The syntax of a piece of code; None for a path, an option of a command and a variable of a shell."""
    try:
        return ast.parse(code.replace("…", "..."))
    except SyntaxError:
        return None


def unknown_in(code: str) -> Iterator[str]:
    """The names in a piece of code that are neither accepted nor explained."""
    for node in ast.walk(tree_of(code) or ast.Pass()):
        if isinstance(node, ast.Name) and not node.id.isupper() | node.id.startswith("SM_"):
            if node.id not in {*PARAMETERS, *KEYWORDS, *NAMES, *MODULES, *VARIABLES, *pai_sdk.__all__}:
                yield node.id
        elif isinstance(node, ast.Attribute) and node.attr not in {*ATTRIBUTES_HERE, *NAMES, *INNER}:
            yield f".{node.attr}"
        elif isinstance(node, ast.keyword) and node.arg not in {*PARAMETERS, *KEYWORDS}:
            yield f"{node.arg}="


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_in_a_table_is_accepted_or_explained(page: Path) -> None:
    codes = [*rows(page)]
    assert len(codes) > 30
    assert {code: found for code in codes if (found := [*unknown_in(code)])} == {}


def test_the_check_sees_what_is_neither() -> None:
    assert [*unknown_in("TrainingInput(s3_colour=1)")] == ["s3_colour="]
    assert [*unknown_in("estimator.paint(colour)")] == [".paint", "colour"]


def test_every_hint_is_in_a_table() -> None:
    shown = {
        name
        for page in PAGES
        for code in rows(page)
        if (tree := tree_of(code)) is not None
        for node in ast.walk(tree)
        for name in (getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "arg", None))
    }
    hinted = {
        *KEYWORDS.keys() - GUESSES.keys() - SELDOM.keys(),
        *NAMES,
        *(name for each in ATTRIBUTES.values() for name in each),
    }
    assert hinted - shown - ELSEWHERE == set()

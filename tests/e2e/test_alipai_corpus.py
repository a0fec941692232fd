"""Programs and a notebook in alipai's style, rewritten by `pai-sdk migrate` and run to the end on the service."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from pai_sdk import Session
from pai_sdk._core.config.settings import save_config
from pai_sdk._service.embedded import ensure_running
from pai_sdk.alipai.replacements import CALLED_OTHERWISE
from tests.support.waiting import PATIENCE_S
from tests.unit.alipai.alipai_table import PRESENT, compare

CORPUS = Path(__file__).with_name("alipai_corpus")
PROGRAMS = sorted(path.name for path in CORPUS.glob("*.py"))


def text_of(folder: Path) -> str:
    return "\n".join(path.read_text() for path in folder.glob("*.*"))


@pytest.fixture(scope="module")
def environment(service_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a user with a config file and a key."""
    home, info = tmp_path_factory.mktemp("corpus home"), ensure_running(service_dir)
    with Session.embedded(service_dir) as session:
        save_config(session.settings, home / ".pai" / "config.json")
    return {
        **os.environ,
        "HOME": str(home),
        "ALIBABA_CLOUD_ACCESS_KEY_ID": info.access_key_id,
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET": info.access_key_secret,
    }


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The rewritten corpus, and what the command said of each file."""
    folder = tmp_path_factory.mktemp("corpus") / "programs"
    shutil.copytree(CORPUS, folder)
    command = [sys.executable, "-m", "pai_sdk", "migrate", "--write", "--json", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, [json.loads(line) for line in done.stdout.splitlines()]


def test_the_corpus_has_every_name_that_is_present() -> None:
    programs = [text_of(CORPUS), *(path.read_text() for path in CORPUS.parent.glob("alipai_*_program.py"))]
    words = {*re.findall(r"\w+", "\n".join(programs))}
    present = [one for one in compare() if one.word == PRESENT and not re.search(r"[.(]", one.name)]
    names = {one.name for one in present if f"{one.module}.{one.name}" not in CALLED_OTHERWISE}
    assert len(names) > 70  # of modules, not of classes
    assert names - words == set()


def test_all_is_rewritten_and_only_what_is_left_out_is_listed(
    migrated: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, files = migrated
    listed = {Path(one["path"]).name: [found["what"] for found in one["findings"]] for one in files}
    assert {name for name, found in listed.items() if found} == {"left_out.py"}
    assert {"pai.pipeline.PipelineStep", ".training_job_api", ".job_api", "pai.dsw.mount"} <= {
        *listed["left_out.py"]
    }
    assert [one["path"] for one in files if not one["changed"]] == [str(folder / "src" / "train.py")]
    assert not re.search(r"^\s*(from|import) pai\b", text_of(folder), re.MULTILINE)
    assert "Texts stay as they are: `import pai`." in (folder / "quick_start.ipynb").read_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_to_the_end(
    name: str, migrated: tuple[Path, list[dict[str, Any]]], environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, name],
        cwd=migrated[0],
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_the_notebook_runs_to_the_end(
    migrated: tuple[Path, list[dict[str, Any]]], environment: dict[str, str]
) -> None:
    folder = migrated[0]
    notebook = nbformat.read(folder / "quick_start.ipynb", as_version=4)
    with tempfile.TemporaryDirectory() as sockets:
        NotebookClient(
            notebook,
            timeout=2 * PATIENCE_S,
            startup_timeout=2 * PATIENCE_S,
            resources={"metadata": {"path": str(folder)}},
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}}),
        ).execute(env=environment)
    assert "notebook" in str(notebook.cells[-1].outputs)
    assert "Succeed" in str(notebook.cells[-1].outputs)

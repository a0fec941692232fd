"""`pai-sdk pack`, as a script and as a person see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pai_sdk._client.code.package import package_code
from pai_sdk.cli.root import app
from pai_sdk.errors import CodeError
from tests.support.messages import refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "src"
    files = {"train.py": 5000, "lib/a.py": 10, "lib/line\nbreak": 1, "out/big.bin": 9, "env/pyvenv.cfg": 1}
    for name, size in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * size)
    (root / "lib" / ".gitignore").write_text("# no models\n*.pt\n")
    (root / "lib" / "model.pt").touch()
    (root / ".paiignore").write_text("out/\n")
    return root


def pai(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["pack", *map(str, arguments)])
    if done.exception:
        raise done.exception
    return done.stdout


def test_what_goes_along_and_what_stays_behind_and_why(folder: Path) -> None:
    assert pai(folder).splitlines() == [
        "       5 B  .paiignore",
        "      17 B  lib/.gitignore",
        "      10 B  lib/a.py",
        "       1 B  lib/line\\nbreak",
        "    5.0 kB  train.py",
        "",
        f"5 files, 5.0 kB, digest {package_code(folder).digest[:32]}",
        "",
        "left behind:",
        "  env/          a virtual environment",
        "  lib/model.pt  lib/.gitignore, line 2: *.pt",
        "  out/          .paiignore, line 1: out/",
    ]


def test_of_many_files_the_largest_are_shown(folder: Path) -> None:
    for number in range(100):
        (folder / f"n{number}").write_text("x")
        (folder / "lib" / f"{number}.pt").touch()
    text = pai(folder)
    assert "train.py" in text
    assert "and 75 smaller ones; --all shows them" in text
    assert "and 73 more; --all shows them" in text
    assert len(pai(folder, "--all").splitlines()) == 105 + 4 + 103


def test_scripts_get_one_object(folder: Path) -> None:
    facts = json.loads(pai(folder, "--json"))
    tree = package_code(folder)
    assert (facts["digest"], facts["size_bytes"]) == (tree.digest, tree.size_bytes)
    assert [file["path"] for file in facts["files"]] == [entry.path for entry in tree.entries]
    assert {"path": "out/", "reason": ".paiignore, line 1: out/"} in facts["left_behind"]


def test_a_terminal_that_cannot_show_a_name_gets_the_rest(folder: Path) -> None:
    (folder / "损失.py").write_text("x")
    done = subprocess.run(
        [sys.executable, "-m", "pai_sdk", "pack", str(folder)],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"1 B  ??.py\n" in done.stdout


def test_keys_are_reported_here_already(folder: Path) -> None:
    (folder / "deploy").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    with refused(CodeError, "deploy"):
        pai(folder)
    assert "deploy" in pai(folder, "--allow-secrets")

"""The code of a local job is copied; what has gone since it was planned is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._client.backend.local.staging import copy_tree
from pai_sdk._client.code.package import package_code
from pai_sdk.errors import CodeError


def test_files_and_modes_are_copied(tmp_path: Path) -> None:
    source = tmp_path / "src"
    (source / "deep").mkdir(parents=True)
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "deep" / "a.py").write_text("a = 1\n")
    copy_tree(package_code(source), tmp_path / "copy")
    assert (tmp_path / "copy" / "run.sh").stat().st_mode & 0o111
    assert (tmp_path / "copy" / "deep" / "a.py").read_text() == "a = 1\n"


def test_a_source_folder_that_vanished_is_reported_file_by_file(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.py").write_text("")
    (source / "b.py").write_text("")
    tree = package_code(source)
    (source / "a.py").unlink()
    (source / "b.py").unlink()
    source.rmdir()
    with pytest.raises(CodeError) as gone:
        copy_tree(tree, tmp_path / "copy")
    assert [problem.where for problem in gone.value.problems] == ["a.py", "b.py"]
    assert "No such file" in str(gone.value)

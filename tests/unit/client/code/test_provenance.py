"""The state of the repository that code is in, as labels."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pai_sdk import Estimator, Session
from pai_sdk._client.code.provenance import git_state, plain_repository
from pai_sdk._client.submit.estimator import Estimator as _Estimator

REMOTE = "https://me:pw-hunter2@git.example.com/team/digits.git"


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "digits"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "train.py").write_text("print(1)")
    git(folder, "init", "-q")
    git(folder, "remote", "add", "origin", REMOTE)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def estimator(source: Path, **more: object) -> _Estimator:
    session = Session("cn-x", "7", oss_bucket_name="models", access_key_id="i", access_key_secret="s")
    parameters = {"source_dir": str(source), "instance_type": "ecs.c6.large", "session": session, **more}
    return Estimator("image", "python train.py", **parameters)  # type: ignore[arg-type]


def labels_of(source: Path, **more: object) -> dict[str, str]:
    return {label.key: label.value for label in estimator(source, **more).plan().request.labels}


def test_the_labels_of_a_job_whose_code_is_in_git(repository: Path) -> None:
    labels = labels_of(repository / "src")
    assert labels["git-repository"] == "git.example.com/team/digits"
    assert labels["git-commit"] == git(repository, "rev-parse", "HEAD")
    assert (labels["git-branch"], labels["git-dirty"]) == ("main", "false")
    assert "hunter2" not in str(labels)
    assert not any("://" in value or len(value) > 128 for value in labels.values()), "labels of the cloud"


def test_a_change_in_the_code_folder_is_dirty_and_one_elsewhere_is_not(repository: Path) -> None:
    (repository / "notes.txt").write_text("x")
    assert labels_of(repository / "src")["git-dirty"] == "false"
    (repository / "src" / "new.py").write_text("x")
    assert labels_of(repository / "src")["git-dirty"] == "true"


def test_labels_of_the_user_win_and_all_can_be_turned_off(repository: Path) -> None:
    assert labels_of(repository / "src", labels={"git-branch": "mine"})["git-branch"] == "mine"
    assert not any(name.startswith("git-") for name in labels_of(repository / "src", git_labels=False))


def test_a_commit_without_a_branch_and_a_repository_without_a_remote(repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach")
    git(repository, "remote", "remove", "origin")
    assert [*labels_of(repository / "src")][:2] == ["git-commit", "git-dirty"]


def test_what_is_in_no_repository_has_no_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "train.py").write_text("x")
    assert git_state(tmp_path) is None
    assert git_state(tmp_path / "none") is None
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) is None, "no commit yet"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None, "no git on this machine"


def test_a_clone_is_shown_by_its_repository_and_not_by_a_temporary_path(repository: Path) -> None:
    made = estimator(repository, source_dir="src", git_config={"repo": f"file://{repository}"})
    try:
        plan = made.plan()
    except ValueError:
        pytest.skip("repositories of this machine are refused")
    assert "/tmp/" not in str(plan).replace(str(repository), "")
    assert "pai-git-" not in str(plan)


def test_urls_of_repositories() -> None:
    urls = [
        "ssh://git@host:22/a/b.git/",
        "git@host:a/b",
        "https://t0ken@host/a/b",
        "https://me:pw@host:84/a.git",
        "",
    ]
    assert [plain_repository(url) for url in urls] == ["host:22/a/b", "host/a/b", "host/a/b", "host:84/a", ""]

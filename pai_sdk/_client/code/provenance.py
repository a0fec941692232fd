"""The origin of code: repository, commit and branch, as labels of a job."""

from __future__ import annotations

import logging
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pai_sdk._core.git.clone import FOREIGN_VARIABLES

logger = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
# The limit of the cloud for the value of a label.
_MAX_VALUE_LENGTH = 128
_SCHEME = re.compile(r"^[A-Za-z][\w+.-]*://")
_LOGIN = re.compile(r"^[^/@]*@")


@dataclass(frozen=True)
class GitState:
    """A state of a repository."""

    repository: str  # host and path, `github.com/pai/digits`; empty without a remote
    commit: str  # the full hash
    branch: str  # empty where none is checked out
    is_dirty: bool  # files of the folder differ from the commit, or are not in it

    def labels(self) -> dict[str, str]:
        """Returns the labels of a job, as the cloud allows them: no scheme, and at most 128 characters."""
        labels = {
            "git-repository": self.repository,
            "git-commit": self.commit,
            "git-branch": self.branch,
            "git-dirty": "true" if self.is_dirty else "false",
        }
        return {name: value[:_MAX_VALUE_LENGTH] for name, value in labels.items() if value}


def git_state(folder: Path) -> GitState | None:
    """Returns the state of the repository around a folder; None without one, or if git is too slow."""
    # Only changes within the folder of the code count.
    status = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--", ".")
    if status is None:
        return None
    headers: dict[str, str] = {}
    is_dirty = False
    for line in status.splitlines():
        if line.startswith("# "):
            name, _, value = line[2:].partition(" ")
            headers[name] = value
        else:
            is_dirty = True
    commit, branch = headers.get("branch.oid", ""), headers.get("branch.head", "")
    if not re.fullmatch(r"[0-9a-f]{40,64}", commit):
        # A repository without a commit.
        return None
    url = (_git(folder, "config", "--get", "remote.origin.url") or "").strip()
    return GitState(plain_repository(url), commit, "" if branch == "(detached)" else branch, is_dirty)


def plain_repository(url: str) -> str:
    """Returns host and path of a repository's URL, without scheme and login."""
    text = _LOGIN.sub("", _SCHEME.sub("", url))
    if not _SCHEME.match(url) and not url.startswith("/"):
        text = text.replace(":", "/", 1)
    return text.removesuffix("/").removesuffix(".git")


def _git(folder: Path, *arguments: str) -> str | None:
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES}
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            # No terminal, prompt or lock: a submission must not wait for git, or disturb a command of the user.
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.info("the state of the repository of %s cannot be read: %s", folder, error)
        return None
    return result.stdout.decode(errors="replace") if result.returncode == 0 else None

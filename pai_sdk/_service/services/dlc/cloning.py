"""Clones code sources into the folders of jobs."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from pai_sdk._core.git.clone import clone
from pai_sdk._core.git.git_config import GitSource, parse_git_config
from pai_sdk._service.services.dlc.problems import refuse_problems
from pai_sdk._service.services.dlc.records import Records
from pai_sdk._service.services.jobs.staging import REASON_CLONE_FAILED, StagingFailed
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.sources import CodeSource
from pai_sdk._wire.pai.roles import CLONE_PREFIX, Mount
from pai_sdk._wire.workspace.code_sources import NewCodeSource
from pai_sdk.errors import CodeError, Problem

_FLAT = 1  # the CloneType of a clone without a folder of its own
_FIELDS = {"git_config['branch']": "Branch", "git_config['commit']": "Commit"}


def mount_of_code(records: Records, code: CodeSource) -> Mount:
    """Returns the mount of a code source; refuses one that can never be cloned."""
    source_id = code.code_source_id or ""
    state = {"branch": code.branch or "", "commit": code.commit or ""}
    registered = _registered(records, source_id)
    try:
        _git_source(registered, state)
    except CodeError as error:
        refuse_problems(
            Problem(f"CodeSource.{_FIELDS.get(problem.where, 'CodeSourceId')}", problem.what, problem.hint)
            for problem in error.problems
        )
    # Only the id, so that no record of the job has the token; what the job changes is stored nowhere.
    uri = f"{CLONE_PREFIX}{source_id}/?{urlencode({name: value for name, value in state.items() if value})}"
    # A code source is registered with a path.
    return Mount(path=code.mount_path or registered.mount_path or "", uri=uri, access="RW")


def clone_mount(records: Records, mount: Mount, folder: Path, check_cancelled: Callable[[], None]) -> None:
    """Clones the code source of a mount into a folder; raises StagingFailed with a reason for the user."""
    uri = urlsplit(mount.uri)
    # A git that outlives a killed service writes here, and not into the clone of the next service.
    work_dir = Path(tempfile.mkdtemp(prefix=".clone-", dir=folder.parent))
    try:
        registered = _registered(records, uri.netloc)
        source = _git_source(registered, dict(parse_qsl(uri.query)))
        clone(source, work_dir / "clone", is_isolated=True, check_cancelled=check_cancelled)
        target = folder if registered.clone_type == _FLAT else folder / _name_of(source.url)
        (work_dir / "clone").rename(target)
    except CodeError as error:
        reasons = "; ".join(": ".join(map(str.strip, each.what.splitlines())) for each in error.problems)
        raise StagingFailed(REASON_CLONE_FAILED, f"The code cannot be cloned: {reasons}.") from error
    except WireError as error:
        raise StagingFailed(REASON_CLONE_FAILED, f"The code cannot be cloned: {error.message}") from error
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)


def _registered(records: Records, code_source_id: str) -> NewCodeSource:
    """Returns a code source with its token."""
    return received(NewCodeSource, records.get("code source", code_source_id).body)


def _git_source(registered: NewCodeSource, state: dict[str, str]) -> GitSource:
    """Returns what is cloned: the state that the job names, or else the registered one; a commit wins."""
    branch, commit = state.get("branch"), state.get("commit")
    if not branch and not commit:
        branch, commit = registered.code_branch, registered.code_commit
    config = {
        "repo": registered.code_repo,
        "branch": branch,
        "commit": commit,
        "username": registered.code_repo_user_name,
        "token": registered.code_repo_access_token,
    }
    # Both are parsed, so that a wrong branch is refused beside a commit too.
    source = parse_git_config({name: value for name, value in config.items() if value})
    if source.url.startswith("file:"):
        what = "is a folder of the service's machine, which it does not clone"
        raise CodeError([Problem("git_config['repo']", what, "register an https or ssh URL")])
    return GitSource(source.url, None if commit else source.branch, source.commit, source.username, source.secret)


def _name_of(url: str) -> str:
    """Returns the name of a repository, as git would name the folder of its clone."""
    name = re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
    return "code" if name in ("", ".", "..") else name

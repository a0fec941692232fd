"""Code from a git repository. A token goes to git by its environment: in no argument, URL, file or error text."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from pai_sdk.code.git_config import TOKEN_USER, GitSource, parse_git_config
from pai_sdk.errors import CodeError, Problem

__all__ = ["Checkout", "checkout", "clone"]

DEFAULT_TIMEOUT_S = 600.0

# These point git to another repository (a hook sets them), or make it print what it sends.
FOREIGN_VARIABLES = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_CURL_VERBOSE",
        "GIT_DIR",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
_USERNAME, _SECRET = "PAI_GIT_USERNAME", "PAI_GIT_SECRET"
# The credential helper that gives git a login to the host of `repo`.
_HELPER = (
    f'!login() {{ test $1 = get && printf \'username=%s\\npassword=%s\\n\' "${_USERNAME}" "${_SECRET}"; }}; login'
)
_REASONS = (
    ("Authentication failed", "the login was refused; check token, username and password"),
    ("could not read Username", "it does not exist, or wants a login; give a token"),
    ("returned error: 403", "the login may not read it"),
    ("not found in upstream", "it has no such branch or tag"),
    (
        "Permission denied (publickey",
        "the host knows none of this machine's ssh keys; add one, or use https and a token",
    ),
    ("Host key verification failed", "the host's key is not in known_hosts; connect once with ssh"),
    ("Could not resolve host", "the host name is not known; check the URL and the network"),
    ("not found", "there is no such repository, or it wants a login"),
    ("does not exist", "there is no such repository"),
    ("does not appear to be a git repository", "there is no repository"),
)


def checkout(
    git_config: Mapping[str, str],
    source_dir: str | os.PathLike[str] | None = None,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> tuple[Path, Checkout]:
    """Get one state of a repository, in a temporary folder that lives as long as the second value is held.

    Args:
        git_config: `repo` (any https or ssh URL); if needed `branch` (or tag), `commit`, `username`, `password`,
            `token`.
        source_dir: a folder or file within the repository; None for all of it.
        timeout_s: for all of it.

    Returns:
        The folder asked for, and what keeps it alive.

    Raises:
        CodeError: the configuration is wrong, git failed, or there is no such folder within the repository.
    """
    source = parse_git_config(git_config)
    whole = Checkout(Path(tempfile.mkdtemp(prefix="pai-git-")))
    try:
        clone(source, whole.path, timeout_s=timeout_s)
        return _within(whole.path, source_dir), whole
    except BaseException:
        whole.close()
        raise


class Checkout:
    """A temporary clone; removed by `close`, or when it is garbage-collected.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._remove = weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder."""
        self._remove()


def clone(source: GitSource, into: Path, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
    """Get one state of a repository with its submodules, without its history where the host allows that.

    A login is sent to the host of `repo` only; submodules on other hosts must be open to everybody, or to this
    machine's ssh keys. Files kept in Git LFS need git-lfs on this machine; without it a warning names them.

    Args:
        source: the repository.
        into: a folder that does not exist yet, or is empty.
        timeout_s: for all of it.

    Raises:
        CodeError: git failed.
    """
    git = _Git(source, into, time.monotonic() + timeout_s)
    if source.commit is None:
        branch = ["--branch", source.branch] if source.branch else []
        git.run("clone", "--quiet", "--depth=1", *branch, "--", source.url, str(git.folder))
    elif source.branch is None:
        git.run("init", "--quiet", "--", str(git.folder))
        git.run("remote", "add", "--", "origin", source.url, inside=True)
        # Hosts serve a single commit only by its full hash, and not all of them do.
        if not git.succeeds("fetch", "--quiet", "--depth=1", "origin", source.commit):
            git.run("fetch", "--quiet", "--tags", "origin", inside=True)
        git.take_commit(source.commit)
    else:
        git.run(
            *("clone", "--quiet", "--no-checkout", "--single-branch", "--branch", source.branch),
            *("--", source.url, str(git.folder)),
        )
        if not git.succeeds("merge-base", "--is-ancestor", source.commit, "HEAD"):
            what = f"{source.commit!r} is not on {source.branch!r} of {source.url}"
            raise CodeError([Problem("git_config['commit']", what)])
        git.take_commit(source.commit)
    if (git.folder / ".gitmodules").is_file():
        git.take_submodules()
    warn_of_pointers(git.folder, source.url)


def _within(root: Path, source_dir: str | os.PathLike[str] | None) -> Path:
    if source_dir is None:
        return root
    # Joining an absolute path would leave the clone, and so may `..` and links.
    found = root / source_dir
    if Path(source_dir).is_absolute() or not found.resolve().is_relative_to(root.resolve()):
        what = f"{str(source_dir)!r} is not within the repository"
        raise CodeError([Problem("source_dir", what, "with git_config, give a path relative to the repository")])
    if not found.exists():
        folders = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and entry.name != ".git")
        hint = f"its folders are {', '.join(folders[:10])}" if folders else "it has no folders"
        raise CodeError([Problem("source_dir", f"{str(source_dir)!r} is not in the repository", hint)])
    return found


class _Git:
    """Runs git for one clone, until one deadline."""

    def __init__(self, source: GitSource, folder: Path, deadline: float) -> None:
        self._source = source
        self.folder = folder
        self._deadline = deadline
        self._environment = _environment(source)

    def run(self, *arguments: str, inside: bool = False) -> None:
        """Run a command that must succeed; `inside` the clone or not."""
        code, output = self._run(arguments, inside)
        if code != 0:
            raise CodeError([Problem("git_config", f"{self._source.url}: {self._reason(output)}")])

    def succeeds(self, *arguments: str) -> bool:
        """True if a command inside the clone succeeds."""
        return self._run(arguments, inside=True)[0] == 0

    def take_commit(self, commit: str) -> None:
        """Write the files of a commit."""
        if not self.succeeds("rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}"):
            what = f"{self._source.url} has no commit {commit!r}"
            raise CodeError([Problem("git_config['commit']", what, "is it pushed?")])
        self.run("checkout", "--quiet", "--detach", commit, inside=True)

    def take_submodules(self) -> None:
        """Write the files of the submodules, and of theirs."""
        update = ("submodule", "--quiet", "update", "--init", "--recursive", "--jobs=4")
        # A host that serves no single commits needs the whole history.
        if self.succeeds(*update, "--depth=1"):
            return
        self.succeeds("submodule", "--quiet", "deinit", "--all", "--force")
        shutil.rmtree(self.folder / ".git" / "modules", ignore_errors=True)
        code, output = self._run(update, inside=True)
        if code != 0:
            what = f"{self._source.url}: its submodules cannot be cloned: {self._reason(output)}"
            hint = "the login is sent to the host of repo only; submodules on other hosts must be public"
            raise CodeError([Problem("git_config", what, hint)])

    def _run(self, arguments: Sequence[str], inside: bool) -> tuple[int, str]:
        command = ["git", *(["-C", str(self.folder)] if inside else []), *arguments]
        try:
            # A new process session has no terminal, so neither git nor ssh can prompt.
            process = subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise CodeError(
                [Problem("git_config", "needs git, which is not on the PATH", "install it")]
            ) from error
        with process:
            try:
                _, stderr = process.communicate(timeout=max(0.1, self._deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _kill(process)
                what = f"{self._source.url}: git took too long and was stopped"
                raise CodeError([Problem("git_config", what)]) from None
            except BaseException:
                _kill(process)
                raise
        return process.returncode, stderr.decode("utf-8", errors="replace")

    def _reason(self, output: str) -> str:
        output = self._source.scrub(output).strip()
        known = next((reason for sign, reason in _REASONS if sign in output), "git failed")
        said = "\n    ".join(output.splitlines()[-3:])
        return f"{known}\n    {said}" if said else known


def _environment(source: GitSource) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in FOREIGN_VARIABLES and not name.startswith("GIT_TRACE")
    }
    kept |= {
        "GIT_TERMINAL_PROMPT": "0",
        "SSH_ASKPASS_REQUIRE": "never",
        # A foreign repository must not reach for this machine's files by its submodules.
        "GIT_ALLOW_PROTOCOL": "https:http:ssh" + (":file" if source.url.startswith("file:") else ""),
        "LC_ALL": "C",
    }
    if source.secret:
        settings = [
            # With a login given, git asks no credential helper for one.
            ("credential.helper", ""),
            ("core.askPass", ""),
            # A helper and no header: git would send a header to whichever host it is redirected to, too.
            (f"credential.{source.base_url}.helper", _HELPER),
        ]
        kept |= {"GIT_ASKPASS": "", "SSH_ASKPASS": ""}
        kept |= {_USERNAME: source.username or TOKEN_USER, _SECRET: source.secret}
        first = int(kept.get("GIT_CONFIG_COUNT") or 0)
        for number, (key, value) in enumerate(settings, start=first):
            kept[f"GIT_CONFIG_KEY_{number}"], kept[f"GIT_CONFIG_VALUE_{number}"] = key, value
        kept["GIT_CONFIG_COUNT"] = str(first + len(settings))
    return kept


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


_log = logging.getLogger(__name__)

_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_LARGEST_POINTER_BYTES = 1024


def warn_of_pointers(root: Path, url: str) -> None:
    """Warn of files of a clone whose content was not fetched.

    Args:
        root: the clone.
        url: of what, for the message.
    """
    pointers = []
    for folder, folders, names in os.walk(root):
        if ".git" in folders:
            folders.remove(".git")
        pointers += [
            str(path.relative_to(root)) for path in map(Path(folder).joinpath, names) if _is_pointer(path)
        ]
    if pointers:
        few = ", ".join(sorted(pointers)[:5]) + (", …" if len(pointers) > 5 else "")
        _log.warning(
            "%s: %d file(s) came as Git LFS pointers, without their content: %s; install git-lfs, run "
            "`git lfs install`, and submit again",
            url,
            len(pointers),
            few,
        )


def _is_pointer(path: Path) -> bool:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or not len(_LFS_POINTER) < status.st_size < _LARGEST_POINTER_BYTES:
        return False
    with path.open("rb") as stream:
        return stream.read(len(_LFS_POINTER)) == _LFS_POINTER

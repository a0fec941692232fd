"""Clones git repositories. A token reaches git only by the environment: not by arguments, URLs or files."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pai_sdk._core.git.git_config import TOKEN_USER, GitSource
from pai_sdk.errors import CodeError, Problem

DEFAULT_TIMEOUT_S = 600.0
_POLL_INTERVAL_S = 0.2

# These point git to another repository (a hook sets them), or make it print its requests.
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
    ("could not read Username", "it does not exist, or requires a login; give a token"),
    ("returned error: 403", "the login may not read it"),
    ("not found in upstream", "it has no such branch or tag"),
    (
        "Permission denied (publickey",
        "the host accepts none of this machine's ssh keys; add one, or use https and a token",
    ),
    ("Host key verification failed", "the host's key is not in known_hosts; connect once with ssh"),
    ("Could not resolve host", "the host name cannot be resolved; check the URL and the network"),
    ("not found", "no such repository, or it requires a login"),
    ("does not exist", "no such repository"),
    ("does not appear to be a git repository", "no repository there"),
)


def clone(
    source: GitSource,
    into: Path,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    is_isolated: bool = False,
    check_cancelled: Callable[[], None] = lambda: None,
) -> None:
    """Clones one state of a repository with its submodules, without its history if the host allows that.

    `is_isolated` is for services: no submodules, and no login or setting of the user who runs git, except keys of
    ssh. `check_cancelled` is called often, and stops git by an exception.
    """
    # A login is sent to the host of `repo` only; submodules on other hosts must be public, or readable with this
    # machine's ssh keys. Files in Git LFS need git-lfs on this machine; without it a warning names them.
    # One deadline for all commands together.
    git = _Git(source, into, time.monotonic() + timeout_s, _environment(source, is_isolated), check_cancelled)
    if source.commit is None:
        branch = ["--branch", source.branch] if source.branch else []
        git.run("clone", "--quiet", "--depth=1", *branch, "--", source.url, str(git.folder))
    elif source.branch is None:
        git.run("init", "--quiet", "--", str(git.folder))
        git.run("remote", "add", "--", "origin", source.url, in_clone=True)
        # Hosts serve a single commit only by its full hash, and not all of them do.
        if not git.succeeds("fetch", "--quiet", "--depth=1", "origin", source.commit):
            git.run("fetch", "--quiet", "--tags", "origin", in_clone=True)
        git.checkout_commit(source.commit)
    else:
        git.run(
            *("clone", "--quiet", "--no-checkout", "--single-branch", "--branch", source.branch),
            *("--", source.url, str(git.folder)),
        )
        if not git.succeeds("merge-base", "--is-ancestor", source.commit, "HEAD"):
            message = f"{source.commit!r} is not on {source.branch!r} of {source.url}"
            raise CodeError([Problem("git_config['commit']", message)])
        git.checkout_commit(source.commit)
    if (git.folder / ".gitmodules").is_file() and not is_isolated:
        git.update_submodules()
    warn_of_pointers(git.folder, source.url)


class _Git:
    """Runs git for one clone, until one deadline."""

    def __init__(
        self,
        source: GitSource,
        folder: Path,
        deadline: float,
        environment: dict[str, str],
        check_cancelled: Callable[[], None],
    ) -> None:
        self._source = source
        self.folder = folder
        self._deadline = deadline
        self._environment = environment
        self._check_cancelled = check_cancelled

    def run(self, *arguments: str, in_clone: bool = False) -> None:
        """Runs a command that must succeed."""
        code, output = self._run(arguments, in_clone)
        if code != 0:
            raise CodeError([Problem("git_config", f"{self._source.url}: {self._reason(output)}")])

    def succeeds(self, *arguments: str) -> bool:
        """Runs a command in the clone; returns True if it succeeds."""
        return self._run(arguments, in_clone=True)[0] == 0

    def checkout_commit(self, commit: str) -> None:
        """Checks out a commit."""
        if not self.succeeds("rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}"):
            message = f"{self._source.url} has no commit {commit!r}"
            raise CodeError([Problem("git_config['commit']", message, "is it pushed?")])
        self.run("checkout", "--quiet", "--detach", commit, in_clone=True)

    def update_submodules(self) -> None:
        """Checks out the submodules, recursively."""
        update = ("submodule", "--quiet", "update", "--init", "--recursive", "--jobs=4")
        # A host that serves no single commits needs the whole history.
        if self.succeeds(*update, "--depth=1"):
            return
        self.succeeds("submodule", "--quiet", "deinit", "--all", "--force")
        shutil.rmtree(self.folder / ".git" / "modules", ignore_errors=True)
        code, output = self._run(update, in_clone=True)
        if code != 0:
            message = f"{self._source.url}: its submodules cannot be cloned: {self._reason(output)}"
            hint = "the login is sent to the host of repo only; submodules on other hosts must be public"
            raise CodeError([Problem("git_config", message, hint)])

    def _run(self, arguments: Sequence[str], in_clone: bool) -> tuple[int, str]:
        command = ["git", *(["-C", str(self.folder)] if in_clone else []), *arguments]
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
                stderr = self._errors_of(process)
            except subprocess.TimeoutExpired:
                _kill(process)
                message = f"{self._source.url}: git took too long and was stopped"
                raise CodeError([Problem("git_config", message)]) from None
            except BaseException:
                _kill(process)
                raise
        return process.returncode, stderr.decode("utf-8", errors="replace")

    def _errors_of(self, process: subprocess.Popen[bytes]) -> bytes:
        """Returns what a process has printed, after its end; raises TimeoutExpired at the deadline."""
        while True:
            self._check_cancelled()
            try:
                return process.communicate(timeout=_POLL_INTERVAL_S)[1]
            except subprocess.TimeoutExpired:
                if time.monotonic() >= self._deadline:
                    raise

    def _reason(self, output: str) -> str:
        output = self._source.scrub(output).strip()
        reason_text = next((reason for sign, reason in _REASONS if sign in output), "git failed")
        tail = "\n    ".join(output.splitlines()[-3:])
        return f"{reason_text}\n    {tail}" if tail else reason_text


def _environment(source: GitSource, is_isolated: bool) -> dict[str, str]:
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in FOREIGN_VARIABLES and not name.startswith("GIT_TRACE")
    }
    variables |= {
        "GIT_TERMINAL_PROMPT": "0",
        # No window may ask for a password: the user may not be at this machine.
        "SSH_ASKPASS_REQUIRE": "never",
        # The submodules of a foreign repository must not read files of this machine.
        "GIT_ALLOW_PROTOCOL": "https:http:ssh" + (":file" if source.url.startswith("file:") else ""),
        # `_REASONS` has the English messages.
        "LC_ALL": "C",
    }
    if is_isolated:
        # Without a home, git and curl read no ~/.gitconfig and no ~/.netrc, which can have logins.
        variables |= {"GIT_CONFIG_GLOBAL": os.devnull, "HOME": os.devnull}
    if source.secret or is_isolated:
        # git asks no other credential helper if the config has a login.
        settings = [("credential.helper", ""), ("core.askPass", "")]
        variables |= {"GIT_ASKPASS": "", "SSH_ASKPASS": ""}
        if source.secret:
            # A helper instead of a header: git would send a header also to a host that it is redirected to.
            settings.append((f"credential.{source.base_url}.helper", _HELPER))
            variables |= {_USERNAME: source.username or TOKEN_USER, _SECRET: source.secret}
        first = int(variables.get("GIT_CONFIG_COUNT") or 0)
        for number, (key, value) in enumerate(settings, start=first):
            variables[f"GIT_CONFIG_KEY_{number}"], variables[f"GIT_CONFIG_VALUE_{number}"] = key, value
        variables["GIT_CONFIG_COUNT"] = str(first + len(settings))
    return variables


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    # The group, since git starts ssh and helpers that would keep the pipe open.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


_log = logging.getLogger(__name__)

_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_MAX_POINTER_BYTES = 1024


def warn_of_pointers(root: Path, url: str) -> None:
    """Logs a warning about files of a clone whose content was not fetched."""
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
    if not stat.S_ISREG(status.st_mode) or not len(_LFS_POINTER) < status.st_size < _MAX_POINTER_BYTES:
        return False
    with path.open("rb") as stream:
        return stream.read(len(_LFS_POINTER)) == _LFS_POINTER

"""The part of pai_sdk that is shipped with a job, so that `from pai_sdk import report` works in every image.

It is a folder with a package `pai_sdk` of a few modules. A job gets it as an input channel, when its code
mentions pai_sdk, and its command adds the channel to PYTHONPATH. So the same mechanism serves every backend, the
content hash of the user's code stays as it is, and the folder is uploaded once for each version of pai_sdk.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from pai_sdk._core.files import replace_file
from pai_sdk._core.names.import_paths import FORMER
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._wire.pai.names import PACKAGE_CHANNEL, PACKAGE_PREFIX

logger = logging.getLogger(__name__)

CHANNEL = PACKAGE_CHANNEL
"""The input channel that has the package."""

SHIPPED = (
    "_core/__init__.py",
    "_core/files.py",
    "_core/names/__init__.py",
    "_core/names/import_paths.py",
    "_core/names/lazy_names.py",
    "_core/version.py",
    "_data/__init__.py",
    "_data/run/__init__.py",
    "_data/run/events/__init__.py",
    "_data/run/events/writer.py",
    "_data/run/report/__init__.py",
    "_data/run/report/callbacks.py",
    "_data/run/report/checkpoint_saver.py",
    "_data/run/report/checkpoints.py",
    "_data/run/report/context.py",
    "_data/run/report/debugger.py",
    "_data/run/report/debugger_editor.py",
    "_data/run/report/debugger_marker.py",
    "_data/run/report/debugger_terminal.py",
    "_data/run/report/debugger_variables.py",
    "_data/run/report/launch.py",
    "_data/run/report/layout.py",
    "_data/run/report/metrics.py",
    "_data/run/report/preemption.py",
    "_data/run/report/report_session.py",
    "_data/run/report/session.py",
    "callbacks.py",
    "callbacks.pyi",
    "checkpoints.py",
    "checkpoints.pyi",
    "errors.py",
    "reports.py",
    "reports.pyi",
    "runs.py",
    "runs.pyi",
)
"""The modules in the package, standard library only. Its `__init__.py` is `_data/run/report/in_jobs.py`."""

_PACKAGE = Path(__file__).resolve().parents[2]
_INIT = "_data/run/report/in_jobs.py"
_MENTIONED = re.compile(rb"\bpai_sdk\b")
# `import pai_sdk.run.store`, `from pai_sdk.run.store import …`, `from pai_sdk.run import store`
_IMPORTED = re.compile(rb"\b(?:from|import)[ \t]+(pai_sdk\.[\w.]+)(?:[ \t]+import[ \t]+(\w+))?")


def mentions_pai_sdk(tree: FileTree | None, command: Sequence[str]) -> bool:
    """Returns True if the text of a job's code or command mentions pai_sdk."""
    return any(map(_MENTIONED.search, _sources(tree, command)))


def former_paths(tree: FileTree | None, command: Sequence[str]) -> list[str]:
    """Returns the modules that the text of a job's code or command mentions by paths of earlier releases."""
    imports = {match for text in _sources(tree, command) for match in _IMPORTED.findall(text)}
    paths = {f"{module.decode()}.{name.decode()}." for module, name in imports}
    return [former for former in FORMER if any(path.startswith(f"{former}.") for path in paths)]


def _sources(tree: FileTree | None, command: Sequence[str]) -> Iterator[bytes]:
    """Yields what may use the pai_sdk of a job: the words of the command, and the code."""
    yield from (word.encode(errors="replace") for word in command if isinstance(word, str))
    # Code with its own pai_sdk at the top needs none.
    if tree is None or any(entry.path in ("pai_sdk.py", "pai_sdk/__init__.py") for entry in tree.entries):
        return
    yield from program_contents(tree)


def program_contents(tree: FileTree | None) -> Iterator[bytes]:
    """Yields the content of the programs in a code folder."""
    if tree is None:
        return
    for entry in tree.entries:
        if entry.path.endswith((".py", ".ipynb", ".sh")):
            yield (tree.root / entry.path).read_bytes()


def with_job_package(command: Sequence[str]) -> list[str]:
    """Returns the command, with the channel added to PYTHONPATH."""
    if list(command[:2]) == ["sh", "-c"] and len(command) == 3:
        return ["sh", "-c", PACKAGE_PREFIX + command[2]]
    return ["sh", "-c", PACKAGE_PREFIX + 'exec "$@"', "sh", *command]


def ships_package(command: Sequence[str]) -> bool:
    """Returns True for a command from `with_job_package`; else a channel of that name is the user's."""
    return len(command) > 2 and command[2].startswith(PACKAGE_PREFIX)


def job_package() -> Path:
    """Returns the folder of the package, in `~/.pai`; creates it if it is missing."""
    contents = _contents()
    digest = hashlib.sha256(repr(sorted(contents.items())).encode()).hexdigest()
    folder = Path.home() / ".pai" / "job-package" / digest[:32]
    try:
        _write(folder, contents)
    except OSError as error:
        logger.info("%s cannot be written (%s); a temporary folder is used", folder, error)
        # The process id is the cache key, so that a forked child gets its own folder.
        folder = _temporary_folder(os.getpid())
        _write(folder, contents)
    return folder


def _contents() -> Mapping[str, bytes]:
    shipped = {f"pai_sdk/{name}": (_PACKAGE / name).read_bytes() for name in SHIPPED}
    return {"pai_sdk/__init__.py": (_PACKAGE / _INIT).read_bytes(), **shipped}


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Writes the files that are missing or differ; several threads and processes can do so at once."""
    # Drafts are beside the folder, not in it: another thread may be uploading its content.
    # With process and thread in its name: each writer has its own draft.
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.{threading.get_ident()}")
    for name, content in contents.items():
        path = folder / name
        try:
            if path.read_bytes() == content:
                continue
        except OSError:
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content, mode=0o644, draft=draft)


@lru_cache
def _temporary_folder(process: int) -> Path:
    return Path(tempfile.mkdtemp(prefix="pai-sdk-job-package-"))

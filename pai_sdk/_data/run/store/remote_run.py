"""A run store for one job: plain paths, a local folder, and `sync`. Usable in a process without pai_sdk.

A pickled `RemoteRun` carries this module's source, so standard pickle loads it where pai_sdk is not installed. For
`oss://` it also carries the sources that send and sign, but no key.
Standard library only, for Python 3.8 and newer.
"""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_MARKER = "_COMPLETE"  # of a checkpoint, as in `_data/run/report/checkpoints.py`


@contextmanager
def local_output_dir(run_folder: str | None, temp_dir: str | None) -> Iterator[str]:
    """Yields the run's own local folder, created if necessary, or a temporary one, which is removed at the end."""
    if run_folder is not None:
        Path(run_folder).mkdir(0o755, parents=True, exist_ok=True)  # several workers of a host may do so at once
        yield run_folder
        return
    folder = tempfile.mkdtemp(prefix="run-", dir=temp_dir)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def must_be_same_folder(folder: str, run_folder: str) -> None:
    """Raises ValueError if a folder is not the run's own folder, in any spelling."""
    try:
        is_same = Path(folder).samefile(run_folder)
    except FileNotFoundError:
        is_same = Path(folder).absolute() == Path(run_folder).absolute()
    if not is_same:
        raise ValueError(
            f"{folder} is not the run's own folder, {run_folder}, into which a run on a local disk writes"
        )


class RemoteRun:
    """The paths of one run, its local folder and its `sync`."""

    train_data_path: str
    val_data_path: str
    test_data_path: str
    saving_runs: bool
    runs_path: str  # the folder of all runs
    run_path: str
    checkpoint_path: str | None  # the checkpoint's file; None when runs are not saved
    logs_path: str | None  # the folder of logs; None when runs are not saved
    checkpoint_filename: str
    logs_subdir: str

    def __init__(self, public: dict[str, Any], private: dict[str, Any]) -> None:
        # `private`: run_folder (on the local disk), temp_dir, run_id, store (pickled), fs_uri, fs_options, and for
        # OSS `oss`: where the folder is, and the sources that reach it.
        vars(self).update(public)
        self._private = private
        self._sync: Callable[[str], object] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        public = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        # `eval` is a builtin, so that loading needs no module that may be missing.
        return eval, (_LOADER, {"source": _source(), "public": public, "private": self._private})

    def __repr__(self) -> str:
        return f"RemoteRun({self.run_path!r})"

    def get_local_output_dir(self) -> Any:
        """Returns a context manager with the local folder to write into; temporary ones are removed."""
        return local_output_dir(self._private["run_folder"], self._private["temp_dir"])

    def sync(self, local_dir: str) -> None:
        """Sends new and changed files of a local folder to the run's folder; ValueError when runs are not saved.

        With pai_sdk in this process, `DirSync` sends the files in parallel. Otherwise they are sent one by one: to
        `oss://` by ossfs, or by code of this object, with the key of the environment (ALIBABA_CLOUD_ACCESS_KEY_ID,
        ALIBABA_CLOUD_ACCESS_KEY_SECRET, ALIBABA_CLOUD_SECURITY_TOKEN); elsewhere by fsspec. Files that could not
        be sent are one SyncError at the end, an OSError without pai_sdk.
        """
        if not self.saving_runs:
            raise ValueError(f"{self.runs_path} does not store runs: its store was created with save_runs=False")
        if self._private["run_folder"] is not None:
            must_be_same_folder(local_dir, self._private["run_folder"])
            return
        if self._sync is None:
            self._sync = self._with_pai_sdk() or _FolderSync(self._private)
        self._sync(local_dir)

    def _with_pai_sdk(self) -> Callable[[str], object] | None:
        try:
            # Loads the class of the store, and so pai_sdk.
            store = pickle.loads(self._private["store"])  # noqa: S301 - from the pickle that this object came in
        except ImportError:
            return None
        sync: Callable[[str], object] = store.sync_fn(self._private["run_id"])
        return sync


_LOADER = (
    "(lambda module: exec(compile(source, 'remote_run.py', 'exec'), module)"
    " or module.__setitem__('_SOURCE', source) or module['RemoteRun'](public, private))"
    "({'__name__': 'pai_sdk._data.run.store.remote_run'})"
)
_SOURCE = ""


def _source() -> str:
    if _SOURCE:  # set where this module was loaded from a pickle, and has no file
        return _SOURCE
    return Path(__file__).read_text(encoding="utf-8")


def sources_for_oss() -> dict[str, str]:
    """Returns the sources that send files to OSS without pai_sdk, by the names of their modules."""
    package = Path(__file__).parents[3]
    paths = {
        "oss_folder": package / "_data/run/store/oss_folder.py",
        "oss_v4": package / "_data/storage/oss/v4.py",
    }
    return {name: path.read_text(encoding="utf-8") for name, path in paths.items()}


class _FolderSync:
    """Sends a local folder, and skips files that it has already sent."""

    def __init__(self, private: dict[str, Any]) -> None:
        self._private = private
        self._send = (
            _sender_to_oss(private) if private["oss"] else _sender_by_fsspec(private["fs_uri"], {}, private)
        )
        self._sent: dict[str, tuple[int, int, int]] = {}

    def __call__(self, folder: str) -> None:
        failures = []
        failed = set()
        # The marker of a checkpoint, or the commit of a trace, states that the files are complete: it is sent
        # after them.
        for path in sorted(_files(Path(folder)), key=lambda path: path.name == _MARKER or _is_commit(path)):
            name = path.relative_to(folder).as_posix()
            if _is_commit(path) and path.parent in failed:
                failures.append(f"{name}: waits for the files beside it that failed")
                continue
            try:
                state = _state(path)
                if self._sent.get(name) != state:
                    self._send(path, name)
                    if _state(path) == state:  # otherwise the file changed while it was read, and is sent again
                        self._sent[name] = state
            except Exception as error:  # each file gets its attempt; all failures are raised below
                failures.append(f"{name}: {type(error).__name__}: {error}")
                failed.add(path.parent)
        if failures:
            raise OSError("{} files could not be sent:\n  - {}".format(len(failures), "\n  - ".join(failures)))


def _sender_to_oss(private: dict[str, Any]) -> Callable[[Path, str], None]:
    location, sources = private["oss"]["place"], private["oss"]["sources"]
    oss_folder, oss_v4 = (_executed(name, sources[name]) for name in ("oss_folder", "oss_v4"))
    try:
        for name in ("fsspec", "ossfs"):
            importlib.import_module(name)
    except ImportError:
        send: Callable[[Path, str], None] = oss_folder.OssFolder(location, oss_v4).send
        return send

    def by_ossfs(path: Path, name: str) -> None:
        key = oss_folder.key_of_environment()  # for each file, because the key may be renewed
        options = {
            "endpoint": oss_folder.endpoint_of(location)[0],
            "key": key[0],
            "secret": key[1],
            "token": key[2],
        }
        _sender_by_fsspec("oss://{bucket}/{key}".format(**location), options, private)(path, name)

    return by_ossfs


def _executed(name: str, source: str) -> Any:
    module = {"__name__": name}
    exec(compile(source, f"{name}.py", "exec"), module)  # noqa: S102 - from the pickle that this object came in
    return SimpleNamespace(**module)


def _sender_by_fsspec(uri: str, options: dict[str, Any], private: dict[str, Any]) -> Callable[[Path, str], None]:
    try:
        import fsspec

        files, root = fsspec.url_to_fs(uri, **{**options, **private["fs_options"]})
    except ImportError as error:
        raise RuntimeError(
            f"files cannot be sent to {uri} from this process ({error}); install pai_sdk here, or fsspec with "
            "what it needs for this kind of URI"
        ) from error

    def send(path: Path, name: str) -> None:
        target = "{}/{}".format(root.rstrip("/"), name)
        files.makedirs(target.rpartition("/")[0], exist_ok=True)
        files.put_file(str(path), target)

    return send


def _files(folder: Path) -> Iterator[Path]:
    """Yields all files of a folder, also through links; a link to a parent of itself is not followed."""
    for directory, folders, names in os.walk(str(folder), followlinks=True):
        real_path = Path(directory).resolve()
        ancestors = {real_path, *real_path.parents}
        folders[:] = sorted(name for name in folders if Path(directory, name).resolve() not in ancestors)
        yield from (Path(directory, name) for name in sorted(names))


def _is_commit(path: Path) -> bool:
    """Returns True for the commit of a trace, which states that the blocks beside it are complete."""
    return path.name.endswith("-committed.parquet")


def _state(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino

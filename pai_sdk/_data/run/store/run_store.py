"""Run stores keep runs and their data on a local disk, in OSS, on HDFS, DBFS, S3 or any file system of fsspec.

    <prefix>/intermediate_train_data[.<idx>]   prepared data; also val and test
    <prefix>/runs/<run id>/                    a run; `RunLayout` describes its content

The method names are those of Horovod's `Store`, so code written for it runs with a `RunStore`.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._core.default_session import reference
from pai_sdk._core.extras import missing_extra
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._data.run.store.checkpoint_sync import CheckpointSync
from pai_sdk._data.run.store.remote_run import RemoteRun, local_output_dir, must_be_same_folder, sources_for_oss
from pai_sdk._data.run.store.roots import DbfsRoot, HdfsRoot, LocalRoot, Root, UriRoot, is_dbfs_path, split
from pai_sdk._data.storage.store import Store, open_store
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.stores.oss import OssStore
from pai_sdk._data.storage.uri import OssUri, uri_scheme
from pai_sdk.errors import InvalidInputError, ObjectNotFoundError, Problem, SettingsError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetDataset

    from pai_sdk._data.storage.sync.dir_sync import SyncReport

logger = logging.getLogger(__name__)

_LOGS = "logs"
_ON_DATABRICKS = "DATABRICKS_RUNTIME_VERSION"
_WEBHDFS_PORT = 9870


class RunStore:
    """Runs and data below one prefix. `RunStore.create` returns the right kind for a prefix.

    Nothing is read or written before the first method that needs it. Paths are full URIs, or have no
    scheme and host; those of another host, and those with `..`, are errors. A store can be pickled, without keys.
    In the process that loads it, `oss://` uses the same services with the keys of that process: the embedded
    service of the same folder, or the default session, which must be one for the same endpoints.

    Args:
        prefix_path: the folder of all content that has no explicit path.
        train_path: the training data; `<prefix>/intermediate_train_data` by default.
        val_path: the validation data; `<prefix>/intermediate_val_data` by default.
        test_path: the test data; `<prefix>/intermediate_test_data` by default.
        runs_path: the folder of runs; `<prefix>/runs` by default.
        save_runs: False when outputs of runs are not kept; paths of checkpoints and logs are None then.
        storage_options: passed on to the fsspec file system. They are part of a pickled store.
        checkpoint_filename: the name of a checkpoint's file.
        temp_dir: the parent of the temporary folders of `local_dir`.
        session: the session whose keys are used for `oss://`; the default session if None.

    Attributes:
        prefix_path: the prefix as a URI.

    Example:
        >>> store = RunStore.create("memory://team")
        >>> store.get_train_data_path(2), store.get_run_path("train-x7k2")
        ('memory://team/intermediate_train_data.2', 'memory://team/runs/train-x7k2')
        >>> store.write_text("memory://team/note.txt", "hello")
        >>> store.read("memory://team/note.txt"), store.exists("memory://team/runs")
        (b'hello', False)
    """

    _checkpoint_filename = "checkpoint.h5"

    def __init__(
        self,
        prefix_path: str | os.PathLike[str],
        train_path: str | None = None,
        val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None,
        save_runs: bool = True,
        *,
        storage_options: Mapping[str, Any] | None = None,
        checkpoint_filename: str | None = None,
        temp_dir: str | None = None,
        session: Any = None,
    ) -> None:
        self._root = self._root_of(os.fspath(prefix_path))
        self.prefix_path = _without_slash(self._root.full(os.fspath(prefix_path)))
        self._train_path = self._path_or_default(train_path, "intermediate_train_data")
        self._val_path = self._path_or_default(val_path, "intermediate_val_data")
        self._test_path = self._path_or_default(test_path, "intermediate_test_data")
        self._runs_path = self._path_or_default(runs_path, "runs")
        self._save_runs = save_runs
        self._options = dict(storage_options or {})
        self._checkpoint_filename = checkpoint_filename or self._checkpoint_filename
        self._temp_dir = temp_dir
        self._session = session

    @staticmethod
    def create(prefix_path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> RunStore:
        """Returns the store of a prefix.

        Args:
            prefix_path: a local path, which may start with `~`, or `file://`, `oss://`, `hdfs://`, `dbfs:/`,
                `s3://`, `memory://` or any other scheme of fsspec. On Databricks, `/dbfs/…` is DBFS too.
            args: passed on to the class of the store.
            kwargs: passed on to the class of the store.

        Raises:
            InvalidInputError: the prefix cannot be read.
        """
        return _class_of(os.fspath(prefix_path))(prefix_path, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.prefix_path}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_session": reference(self._session)}

    def _root_of(self, prefix: str) -> Root:
        raise NotImplementedError("create a store with RunStore.create()")

    def _path_or_default(self, path: str | None, name: str) -> str:
        return f"{self.prefix_path}/{name}" if path is None else _without_slash(self._root.full(path))

    # ---- paths ----------------------------------------------------------------------------------------------

    def get_train_data_path(self, idx: int | None = None) -> str:
        """Returns the folder of training data; with an index, that of one data set of several."""
        return _numbered(self._train_path, idx)

    def get_val_data_path(self, idx: int | None = None) -> str:
        """Returns the folder of validation data; with an index, that of one data set of several."""
        return _numbered(self._val_path, idx)

    def get_test_data_path(self, idx: int | None = None) -> str:
        """Returns the folder of test data; with an index, that of one data set of several."""
        return _numbered(self._test_path, idx)

    def get_data_metadata_path(self, path: str) -> str:
        """Returns the metadata file beside a data set; `read_metadata` and `write_metadata` use it."""
        return f"{_without_slash(self.get_localized_path(path))}_cached_metadata.json"

    def saving_runs(self) -> bool:
        """Returns True if outputs of runs are stored."""
        return self._save_runs

    def get_runs_path(self) -> str:
        """Returns the folder of all runs."""
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        """Returns the folder of a run.

        Raises:
            InvalidInputError: the id cannot be that of a run.
        """
        return self.layout(run_id).folder

    def layout(self, run_id: str) -> RunLayout:
        """Returns all paths of a run; errors as for `get_run_path`."""
        return RunLayout.of(self._runs_path, run_id)

    def get_checkpoint_path(self, run_id: str) -> str | None:
        """Returns the checkpoint's file; None when runs are not saved."""
        path = self.layout(run_id).channel(self._checkpoint_filename)
        return path if self._save_runs else None

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        """Returns the files of a run whose names end with `suffix`, sorted.

        Raises:
            InvalidInputError: the store does not save runs.
        """
        _must_save_runs(self)
        return [path for path in self.list(self.get_run_path(run_id)) if path.endswith(suffix)]

    def get_logs_path(self, run_id: str) -> str | None:
        """Returns the folder of a run's logs; None when runs are not saved."""
        path = self.layout(run_id).logs
        return path if self._save_runs else None

    def get_checkpoint_filename(self) -> str:
        """Returns the name of a checkpoint's file."""
        return self._checkpoint_filename

    def get_logs_subdir(self) -> str:
        """Returns the name of the folder of logs."""
        return _LOGS

    def get_full_path(self, path: str) -> str:
        """Returns the URI of a path; a URI stays unchanged.

        Raises:
            InvalidInputError: the path is on another host, or has a part `..`.
        """
        return self._root.full(path)

    def get_full_path_fn(self) -> Callable[[str], str]:
        """Returns `get_full_path` as a function that can be pickled."""
        return self._root.full

    def get_localized_path(self, path: str) -> str:
        """Returns the path without scheme and host, for the file system; errors as for `get_full_path`."""
        return self._root.localized(path)

    # ---- files ----------------------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        """Returns True if there is such a file, or a folder with files in it."""
        store, name = self._locate(path)
        if name and (_is_file(store, name) or _is_file(store, f"{name}/")):
            return True
        return any(True for _ in store.list(f"{name}/" if name else ""))

    def read(self, path: str) -> bytes:
        """Returns the content of a file.

        Raises:
            ObjectNotFoundError: no such file.
        """
        store, name = self._locate(path)
        return b"".join(store.read(name))

    def write_text(self, path: str, text: str) -> None:
        """Create or replace a text file in UTF-8; readers see the old or the new text."""
        store, name = self._locate(path)
        store.write(name, text.encode())

    def list(self, path: str | None = None) -> Iterator[str]:
        """Yields the URIs of all files below a path, sorted; without one, below the prefix."""
        folder = _without_slash(self._root.full(self.prefix_path if path is None else path))
        for file in self._open(folder).list():
            yield f"{folder}/{self._root.written(file.path)}"

    def open_runs(self) -> Store:
        """Opens the folder of all runs, as `storage.open_store` opens folders."""
        return self._open(self._runs_path)

    def read_metadata(self, path: str) -> dict[str, Any] | None:
        """Returns the stored metadata of a data set; None when there is none, or it cannot be read."""
        with suppress(ObjectNotFoundError, ValueError):
            metadata = json.loads(self.read(self.get_data_metadata_path(path)))
            return metadata if isinstance(metadata, dict) else None
        return None

    def write_metadata(self, path: str, metadata: Mapping[str, Any]) -> None:
        """Store metadata of a data set, as JSON."""
        self.write_text(self.get_data_metadata_path(path), json.dumps(dict(metadata), ensure_ascii=False))

    def read_serialized_keras_model(self, ckpt_path: str, model: Any = None, custom_objects: Any = None) -> str:
        """Returns a checkpoint's file in base64; other arguments are for callers of Horovod's method."""
        del model, custom_objects
        return base64.b64encode(self.read(ckpt_path)).decode()

    def is_parquet_dataset(self, path: str) -> bool:
        """Returns True if a path is a data set in Parquet: a file, or a folder with such files.

        Raises:
            StorageError: the key is refused, or the path cannot be read otherwise.
        """
        return _has_files(partial(self.get_parquet_dataset, path))

    def get_parquet_dataset(self, path: str) -> ParquetDataset:
        """Returns a data set in Parquet, opened with pyarrow.

        Raises:
            MissingExtraError: pyarrow is not installed.
            FileNotFoundError: there is nothing at the path.
        """
        try:
            from pyarrow.parquet import ParquetDataset
        except ImportError as error:
            raise missing_extra(f"{path} needs pyarrow", "fs") from error
        return ParquetDataset(self.get_localized_path(path), filesystem=self._files_for_arrow())

    def get_filesystem(self) -> Any:
        """Returns the fsspec file system, for libraries that accept one; it expects localized paths.

        Raises:
            MissingExtraError: fsspec is not installed.
        """
        try:
            import fsspec
        except ImportError as error:
            raise missing_extra("a file system of fsspec needs fsspec", "fs") from error
        if uri_scheme(self.prefix_path) == "oss":
            from pai_sdk._data.storage.filesystem import OssFileSystem

            return OssFileSystem(self._session)
        uri, options = self._for_fsspec(self.prefix_path)
        return fsspec.url_to_fs(uri, **options)[0]

    # ---- a run ----------------------------------------------------------------------------------------------

    def local_dir(self, run_id: str) -> AbstractContextManager[str]:
        """Returns the local folder that a run writes into: its own on the local disk, else a temporary one.

        A temporary folder is removed at the end, also after errors; `sync` saves its content.
        """
        return local_output_dir(self._run_folder(run_id), self._temp_dir)

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], AbstractContextManager[str]]:
        """Returns `local_dir` of one run as a function that can be pickled."""
        return partial(local_output_dir, self._run_folder(run_id), self._temp_dir)

    def sync(self, run_id: str, local_dir: str | os.PathLike[str], *, delete: bool = False) -> SyncReport | None:
        """Send new and changed files of a local folder to the run; a no-op where it is the run's own folder.

        Args:
            run_id: the run.
            local_dir: the folder that `local_dir` returned.
            delete: also delete files of the run that are not in the folder. Checkpoints are deleted only if they
                were sent from this folder, and when a newer one is complete in the store.

        Returns:
            The report of the transfer; None on the local disk.

        Raises:
            InvalidInputError: the store does not save runs.
            SyncError: some files could not be sent; `failures` lists them, other files were sent.
        """
        raise NotImplementedError

    def sync_fn(self, run_id: str) -> Callable[[str], object]:
        """Returns `sync` of one run as a function that can be pickled; files sent by earlier calls are skipped."""
        self.get_run_path(run_id)
        return partial(self.sync, run_id)

    def to_remote(self, run_id: str, dataset_idx: int | None = None) -> RemoteRun:
        """Returns the store for one job, to be pickled and used in a process without pai_sdk."""
        folder = self.get_run_path(run_id)
        fs_uri, fs_options = self._for_fsspec(folder)
        private = {
            "run_folder": self._run_folder(run_id),
            "temp_dir": self._temp_dir,
            "run_id": run_id,
            "store": pickle.dumps(self),
            "fs_uri": fs_uri,
            "fs_options": fs_options,
            "oss": _location_in_oss(folder, self._open),
        }
        return RemoteRun(_remote_paths(self, run_id, dataset_idx), private)

    # ---- differences between the kinds of stores --------------------------------------------------------------

    def _files_for_arrow(self) -> Any:
        from pai_sdk._data.run.store.arrow_files import arrow_files

        return arrow_files(self.get_filesystem(), self._locate)

    def _run_folder(self, run_id: str) -> str | None:
        """Returns the run's folder if it is on the local disk."""
        self.get_run_path(run_id)
        return None

    def _for_fsspec(self, uri: str) -> tuple[str, dict[str, Any]]:
        """Returns a URI for fsspec, with the options of its file system."""
        return uri, self._options

    def _open(self, folder: str) -> Store:
        uri, options = self._for_fsspec(folder)
        return open_store(uri, self._session, storage_options=options)

    def _locate(self, path: str) -> tuple[Store, str]:
        """Returns the store to open for a path, and the name in it, which is empty for a path without folders."""
        folder, name = split(self._root, path, self.prefix_path)
        return self._open(folder), name


class LocalRunStore(RunStore):
    """A store on a local disk, or on a network file system that is mounted like one.

    Example:
        >>> LocalRunStore("/data/team").get_run_path("r1")
        'file:///data/team/runs/r1'
    """

    def __init__(self, prefix_path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        super().__init__(prefix_path, *args, **kwargs)
        if _on_databricks() and not isinstance(self, DbfsRunStore):
            logger.warning(
                "%s is on a disk that Databricks removes with the cluster; use dbfs:/… to keep runs",
                self.prefix_path,
            )

    def _root_of(self, prefix: str) -> Root:
        return LocalRoot()

    def _run_folder(self, run_id: str) -> str | None:
        return self.get_localized_path(self.get_run_path(run_id))

    def _files_for_arrow(self) -> Any:
        return self.get_filesystem()  # pyarrow reads a local disk itself

    def _open(self, folder: str) -> Store:
        return open_store(Path(self.get_localized_path(folder)))

    def sync(self, run_id: str, local_dir: str | os.PathLike[str], *, delete: bool = False) -> None:
        """Checks that the folder is the run's own; nothing needs to be sent.

        Raises:
            InvalidInputError: it is another folder.
        """
        del delete
        _must_save_runs(self)
        folder = self._run_folder(run_id)
        try:
            must_be_same_folder(os.fspath(local_dir), str(folder))
        except ValueError as error:
            hint = "use the folder that local_dir() returns"
            raise InvalidInputError([Problem("local_dir", str(error), hint)]) from error


class DbfsRunStore(LocalRunStore):
    """A store on the file system of Databricks, through its mount.

    Args:
        prefix_path: `dbfs:/…`, `/dbfs/…`, `file:///dbfs/…` or `file:/dbfs/…`.
        args: as for `RunStore`.
        mount: the mount point of DBFS.
        kwargs: as for `RunStore`.

    Example:
        >>> DbfsRunStore("dbfs:/team").get_checkpoint_path("r1")
        'file:///dbfs/team/runs/r1/checkpoint.tf'
    """

    _checkpoint_filename = "checkpoint.tf"

    def __init__(
        self, prefix_path: str | os.PathLike[str], *args: Any, mount: str = "/dbfs", **kwargs: Any
    ) -> None:
        self._mount = mount
        super().__init__(prefix_path, *args, **kwargs)

    def _root_of(self, prefix: str) -> Root:
        return DbfsRoot(self._mount)

    @staticmethod
    def normalize_path(path: str) -> str:
        """Returns a path of DBFS in the form `/dbfs/…`."""
        return DbfsRoot.normalized(path)

    @staticmethod
    def matches_dbfs(path: str) -> bool:
        """Returns True if a path has one of the forms of DBFS."""
        return is_dbfs_path(path)


class RemoteRunStore(RunStore):
    """A store at a URI: OSS, S3, memory, or any other file system of fsspec.

    Example:
        >>> RemoteRunStore("s3://bucket/team").get_logs_path("r1")
        's3://bucket/team/runs/r1/logs'
    """

    def _root_of(self, prefix: str) -> Root:
        return UriRoot.of(prefix)

    def sync(self, run_id: str, local_dir: str | os.PathLike[str], *, delete: bool = False) -> SyncReport:
        """Send new and changed files of a local folder to the run; see `RunStore.sync`."""
        _must_save_runs(self)
        source, target = LocalStore(Path(local_dir)), self._open(self.get_run_path(run_id))
        checkpoints = f"{RunLayout('').checkpoints}/"

        def keeps(path: str) -> bool:
            return path.startswith(checkpoints) or path == self._checkpoint_filename

        return CheckpointSync(source, target, base=checkpoints, folders=True, delete=delete, keeps=keeps).run()


class HdfsRunStore(RemoteRunStore):
    """A store on HDFS, through pyarrow and libhdfs or over WebHDFS.

    Args:
        prefix_path: `hdfs://host:port/path`, `hdfs:///path` or `/path`.
        host: the namenode; that of the prefix by default, else `default`: the one of Hadoop's configuration.
        port: the namenode's port; that of the prefix by default, else 0: the one of the configuration. For WebHDFS
            the HTTP port, 9870 by default.
        user: the name of the user; that of the prefix by default.
        kerb_ticket: path of the Kerberos ticket cache. For WebHDFS any value turns Kerberos on.
        driver: `libhdfs` (pyarrow; needs Java and Hadoop's libhdfs) or `webhdfs` (HTTP; needs neither).
        extra_conf: Hadoop settings for libhdfs.
        args: as for `RunStore`, after the prefix.
        kwargs: as for `RunStore`.

    Raises:
        InvalidInputError: the prefix is not on HDFS, has no path, or an argument does not fit the driver.

    Example:
        >>> HdfsRunStore("/user/team", host="namenode").get_runs_path()
        'hdfs:///user/team/runs'
    """

    def __init__(
        self,
        prefix_path: str | os.PathLike[str],
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        kerb_ticket: str | None = None,
        driver: str = "libhdfs",
        extra_conf: Mapping[str, str] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        authority, _ = HdfsRoot.split(os.fspath(prefix_path))
        url_host, url_port, url_user = HdfsRoot.host_of(authority)
        self._host, self._port = host or url_host, port or url_port
        super().__init__(prefix_path, *args, **kwargs)
        self._driver = driver
        self._hdfs_options = self._options_of_driver(user or url_user, kerb_ticket, extra_conf)

    def _options_of_driver(
        self, user: str | None, kerb_ticket: str | None, extra_conf: Mapping[str, str] | None
    ) -> dict[str, Any]:
        if self._driver in ("libhdfs", "libhdfs3"):
            hdfs_options = {
                "user": user,
                "kerb_ticket": kerb_ticket,
                "extra_conf": extra_conf and dict(extra_conf),
            }
            return {"host": self._host or "default", "port": self._port or 0, **_without_none(hdfs_options)}
        problems = []
        if self._driver != "webhdfs":
            problems.append(Problem("driver", f"{self._driver!r} is not a driver", "libhdfs or webhdfs"))
        if extra_conf:
            problems.append(Problem("extra_conf", "has no effect over WebHDFS", "leave it out"))
        if self._host is None:
            problems.append(Problem("host", "is required", "WebHDFS needs the namenode: hdfs://host:9870/path"))
        if problems:
            raise InvalidInputError(problems)
        http_options = {"user": user, "kerberos": True if kerb_ticket else None}
        return {"host": self._host, "port": self._port or _WEBHDFS_PORT, **_without_none(http_options)}

    def _root_of(self, prefix: str) -> Root:
        authority, _ = HdfsRoot.split(prefix)
        return HdfsRoot(authority, f"{self._host}:{self._port}")

    def _for_fsspec(self, uri: str) -> tuple[str, dict[str, Any]]:
        scheme = "webhdfs" if self._driver == "webhdfs" else "hdfs"
        return f"{scheme}://{self._root.localized(uri)}", {**self._hdfs_options, **self._options}


def _class_of(prefix: str) -> type[RunStore]:
    if prefix.startswith("dbfs:") or (_on_databricks() and is_dbfs_path(prefix)):
        return DbfsRunStore
    scheme = uri_scheme(prefix)
    if scheme == "hdfs":
        return HdfsRunStore
    return LocalRunStore if scheme in (None, "file") else RemoteRunStore


def _numbered(path: str, idx: int | None) -> str:
    return path if idx is None else f"{path}.{idx}"


def _without_slash(path: str) -> str:
    return RunLayout(path).folder


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _must_save_runs(store: RunStore) -> None:
    if not store.saving_runs():
        hint = "create it with save_runs=True, or check saving_runs() before"
        raise InvalidInputError([Problem("save_runs", f"{store.prefix_path} does not store runs", hint)])


def _remote_paths(store: RunStore, run_id: str, dataset_idx: int | None) -> dict[str, Any]:
    """Returns the attributes of a `RemoteRun`."""
    return {
        "train_data_path": store.get_train_data_path(dataset_idx),
        "val_data_path": store.get_val_data_path(dataset_idx),
        "test_data_path": store.get_test_data_path(dataset_idx),
        "saving_runs": store.saving_runs(),
        "runs_path": store.get_runs_path(),
        "run_path": store.get_run_path(run_id),
        "checkpoint_path": store.get_checkpoint_path(run_id),
        "logs_path": store.get_logs_path(run_id),
        "checkpoint_filename": store.get_checkpoint_filename(),
        "logs_subdir": store.get_logs_subdir(),
    }


def _location_in_oss(folder: str, open_folder: Callable[[str], Store]) -> dict[str, Any] | None:
    """Returns what a process without pai_sdk needs to reach a folder in OSS, except the key."""
    if uri_scheme(folder) != "oss":
        return None
    try:
        store = open_folder(folder)
        assert isinstance(store, OssStore)  # noqa: S101 - as its scheme says
        location = store.client.place(store.folder)
    except SettingsError:  # the process that loads it reads endpoint and region from its environment
        uri = OssUri.parse(folder).as_dir()
        location = {"bucket": uri.bucket, "key": uri.key}
    return {"place": location, "sources": sources_for_oss()}


def _is_file(store: Store, name: str) -> bool:
    try:
        store.head(name)
    except ObjectNotFoundError:
        return False
    return True


def _on_databricks() -> bool:
    return _ON_DATABRICKS in os.environ


def _has_files(open_dataset: Callable[[], ParquetDataset]) -> bool:
    """Returns whether there is a data set that pyarrow can open, with files."""
    try:
        return bool(open_dataset().files)
    except (FileNotFoundError, ObjectNotFoundError):
        return False
    except ValueError as error:  # pyarrow raises a subclass for a file of another format
        if type(error).__module__.startswith("pyarrow"):
            return False
        raise

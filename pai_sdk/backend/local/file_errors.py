"""Faults of the file system while a job is put in place, as errors that name the file and what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pai_sdk.agent.protocol import DISK_IS_FULL
from pai_sdk.errors import LocalRunError

_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NOT_A_FOLDER = (errno.ENOTDIR, errno.EEXIST)


@contextmanager
def file_faults_explained(data_dir: Path) -> Iterator[None]:
    """Raise a typed error for a fault of the file system within the block.

    Args:
        data_dir: the folder of all local jobs; the fault is there where the system names no file.

    Raises:
        LocalRunError: what the fault is, where, and what to do.

    Example:
        >>> with file_faults_explained(Path("/srv/pai")):
        ...     Path("/proc/nothing").mkdir()
        Traceback (most recent call last):
        pai_sdk.errors.LocalRunError: the job was not started: /proc/nothing: No such file or directory
    """
    try:
        yield
    except OSError as error:
        if type(error).__module__ != OSError.__module__ or error.errno is None:  # `requests` has OSErrors too
            raise
        where = error.filename2 or error.filename or data_dir
        raise LocalRunError(f"the job was not started: {_explained(error, where)}") from error


def _explained(error: OSError, where: object) -> str:
    said = f"{where}: {error.strerror or error}"
    if error.errno in DISK_IS_FULL:
        return (
            f"{said}. Free some space there (`pai-sdk prune` removes what ended jobs keep), or set PAI_LOCAL_DIR "
            "to a folder on another disk"
        )
    if error.errno in _NOT_ALLOWED:
        return f"{said}. Take a folder that you may write to; PAI_LOCAL_DIR moves that of all local jobs"
    if error.errno in _NOT_A_FOLDER:
        return f"{said}. There is a file where a folder has to be: name another folder, or move the file away"
    return said

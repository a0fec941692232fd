"""Requests to a file system of fsspec: repeated after transient errors, which are translated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.pool import TransferPool
from pai_sdk._data.storage.stores.passing_errors import is_transient_error
from pai_sdk.errors import FileChangedError, ObjectNotFoundError, PaiError, StorageError


def _always() -> bool:
    return True


@dataclass(frozen=True)
class FsspecRequests:
    """Sends the requests of one store. It can be pickled."""

    uri: str  # of the store, with "/" at its end
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    may_retry: Callable[[], bool] = _always  # no lambda: a store can be pickled

    def cancelled_by(self, pool: TransferPool) -> FsspecRequests:
        """Returns requests for one transfer, which end when the transfer is stopped."""

        def pause(seconds: float) -> None:
            pool.stopped.wait(seconds)

        retry = replace(self.retry, sleep=pause) if self.retry.sleep is time.sleep else self.retry
        return replace(self, retry=retry, may_retry=lambda: pool.may_retry() and not pool.stopped.is_set())

    def send(self, path: str, request: Callable[[], Any], *, can_repeat: bool = True) -> Any:
        """Sends a request, again after a transient error; only those for missing files stay untranslated."""
        try:
            return self.retry.call(
                request, is_transient=lambda error: can_repeat and is_transient_error(error) and self.may_retry()
            )
        except ContentError as error:
            if not isinstance(error.cause, OSError):
                raise error.cause from error.cause.__cause__
            raise self._error_for(path, error.cause) from error.cause
        except (PaiError, FileNotFoundError, NotADirectoryError):
            raise
        except Exception as error:
            # Libraries behind fsspec raise errors that are no OSError.
            raise self._error_for(path, error) from error

    def change(self, path: str, request: Callable[[], Any], *, can_repeat: bool = True) -> None:
        """Sends a request that changes something; a missing file or folder is an error."""
        try:
            self.send(path, request, can_repeat=can_repeat)
        except OSError as error:
            # Here a FileNotFoundError does not mean that the file itself is missing.
            raise self._error_for(path, error) from error

    def missing_file(self, path: str) -> ObjectNotFoundError:
        """Returns the error for a file that does not exist."""
        return ObjectNotFoundError(f"{self.uri}{path}: no such file", uri=f"{self.uri}{path}")

    def changed_error(self, path: str) -> FileChangedError:
        """Returns the error for a file that was changed by others meanwhile."""
        return FileChangedError(f"{self.uri}{path}: it was changed while it was read", uri=f"{self.uri}{path}")

    def _error_for(self, path: str, error: Exception) -> StorageError:
        uri = f"{self.uri}{path}"
        reason = error.strerror or error if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        return StorageError(f"{uri}: {reason}", uri=uri, retryable=is_transient_error(error))


class ContentError(Exception):
    """Raised when the content to write cannot be read: not an error of the file system."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def mark_failures(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the content to write; an error in it is not taken for one of the file system."""
    try:
        yield from chunks
    except Exception as error:
        raise ContentError(error) from None

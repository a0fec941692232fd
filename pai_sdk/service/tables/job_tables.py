"""Tables as inputs and outputs of jobs: the job gets the service's endpoint, and a key for these tables."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Mapping

from pai_sdk.execution.base import JobFiles
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.service.state.folder import Keys
from pai_sdk.service.tables.table_errors import TableError
from pai_sdk.service.tables.table_rights import ALL_TABLES, NamedTable, TableRights, is_table, named_table
from pai_sdk.service.tables.table_store import TableStore
from pai_sdk.storage.base import Store

__all__ = ["JobTables", "TableKeys"]

_OF_A_JOB = "job."


class TableKeys(Mapping[str, str]):
    """The secret of each access key id: the service's own, and one for each job that runs.

    A job's secret is derived from the service's, so nothing is stored. It opens the tables that the job's inputs
    and outputs name, and neither the API nor the objects.

    Args:
        keys: the service's own key.
        request_of: the request of a job that runs, by its id; None for another one, whose key is refused.
    """

    def __init__(self, keys: Keys, *, request_of: Callable[[str], TrainingJobRequest | None]) -> None:
        self._own = keys.access_key_id, keys.access_key_secret
        self._request_of = request_of

    def of_job(self, job_id: str) -> tuple[str, str]:
        """The key of a job: id and secret."""
        text = f"tables of {job_id}".encode()
        return f"{_OF_A_JOB}{job_id}", hmac.new(self._own[1].encode(), text, hashlib.sha256).hexdigest()

    def rights_of(self, key_id: str) -> TableRights:
        """The tables that a key opens.

        Raises:
            TableError: the job has ended just now.
        """
        if key_id == self._own[0]:
            return ALL_TABLES
        request = self._request_of(key_id.removeprefix(_OF_A_JOB))
        if request is None:
            raise TableError(401, "ODPS-0410042", "The access key id is not known here.")
        return TableRights(
            _tables_of(channel.input_uri for channel in request.input_channels),
            _tables_of(channel.output_uri for channel in request.output_channels),
        )

    def __getitem__(self, key_id: str) -> str:
        if key_id == self._own[0]:
            return self._own[1]
        job_id = key_id.removeprefix(_OF_A_JOB)
        if job_id == key_id or self._request_of(job_id) is None:
            raise KeyError(key_id)
        return self.of_job(job_id)[1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._own[:1])

    def __len__(self) -> int:
        return 1


class JobTables:
    """Prepares inputs and outputs that are tables.

    Args:
        store: the tables.
        endpoint: of the service, as jobs reach it.
        keys: gives the job its key.
    """

    def __init__(self, store: TableStore, endpoint: str, keys: TableKeys) -> None:
        self._store = store
        self._endpoint = endpoint
        self._keys = keys

    def put(self, files: JobFiles, job_id: str, channel: Store, uri: str, must_exist: bool) -> None:
        """Write what a job needs to use a table: `meta.json` in the channel's folder, and the key.

        Args:
            files: of the job.
            job_id: of the job.
            channel: its folder.
            uri: of the table.
            must_exist: whether table and partition must be there; a job may create those of its outputs.

        Raises:
            TableError: there is no such table or partition, or the URI names none.
        """
        named = named_table(uri)
        if must_exist:
            table = self._store.table(named.project, named.name)
            if named.partition and not table.partition_folder(named.partition).exists():
                partition = ",".join(f"{name}={value}" for name, value in named.partition.items())
                raise TableError(404, "NoSuchPartition", f"Partition not found: {partition}")
        meta = json.dumps({"endpoint": self._endpoint, "path": uri})
        channel.write("meta.json", meta.encode())
        key_id, secret = self._keys.of_job(job_id)
        files.write_table_key(json.dumps({"AccessKeyId": key_id, "AccessKeySecret": secret}))


def _tables_of(uris: Iterable[str | None]) -> list[NamedTable]:
    return [named_table(uri) for uri in uris if uri is not None and is_table(uri)]

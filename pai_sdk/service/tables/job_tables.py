"""Tables as inputs of jobs: the job gets the service's endpoint, and a key that opens the tables while it runs."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator, Mapping

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.base.files import replace_file
from pai_sdk.service.state.folder import Keys
from pai_sdk.service.tables.statements import read_partition
from pai_sdk.service.tables.table_errors import TableFault
from pai_sdk.service.tables.table_store import TableStore

__all__ = ["JobTables", "TableKeys"]

_URI = re.compile(r"odps://(?P<project>\w+)/tables/(?P<table>\w+)(?:/(?P<partition>.+?))?/?", re.ASCII)
_OF_A_JOB = "job."


class TableKeys(Mapping[str, str]):
    """The secret of each access key id: the service's own, and one for each job that runs.

    A job's secret is derived from the service's, so nothing is stored. It opens neither the API nor the objects.

    Args:
        keys: the service's own key.
        is_running: whether a job of this id runs; its key is refused otherwise.
    """

    def __init__(self, keys: Keys, *, is_running: Callable[[str], bool]) -> None:
        self._own = keys.access_key_id, keys.access_key_secret
        self._is_running = is_running

    def of_job(self, job_id: str) -> tuple[str, str]:
        """The key of a job: id and secret."""
        text = f"tables of {job_id}".encode()
        return f"{_OF_A_JOB}{job_id}", hmac.new(self._own[1].encode(), text, hashlib.sha256).hexdigest()

    def __getitem__(self, key_id: str) -> str:
        if key_id == self._own[0]:
            return self._own[1]
        job_id = key_id.removeprefix(_OF_A_JOB)
        if job_id == key_id or not self._is_running(job_id):
            raise KeyError(key_id)
        return self.of_job(job_id)[1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._own[:1])

    def __len__(self) -> int:
        return 1


class JobTables:
    """Prepares inputs that are tables.

    Args:
        store: the tables.
        endpoint: of the service, as jobs reach it.
        keys: gives the job its key.
    """

    def __init__(self, store: TableStore, endpoint: str, keys: TableKeys) -> None:
        self._store = store
        self._endpoint = endpoint
        self._keys = keys

    def put(self, sandbox: Sandbox, job_id: str, channel: str, uri: str) -> None:
        """Write what a job needs to read a table: `meta.json` in the channel's folder, and the key.

        Raises:
            TableFault: there is no such table or partition.
        """
        found = _URI.fullmatch(uri)
        if found is None:
            raise TableFault(
                400, "ODPS-0130161", f"{uri[:200]!r} is not odps://project/tables/table/partition=value"
            )
        table = self._store.table(found["project"], found["table"])
        if found["partition"]:
            partition = read_partition(found["partition"])
            if not table.partition_folder(partition).exists():
                raise TableFault(404, "NoSuchPartition", f"Partition not found: {found['partition']}")
        meta = json.dumps({"endpoint": self._endpoint, "path": uri})
        replace_file(sandbox.input_dir(channel) / "meta.json", meta, mode=0o644)
        key_id, secret = self._keys.of_job(job_id)
        sandbox.odps_credential_file.parent.mkdir(exist_ok=True)
        key = json.dumps({"AccessKeyId": key_id, "AccessKeySecret": secret})
        replace_file(sandbox.odps_credential_file, key, mode=0o600)

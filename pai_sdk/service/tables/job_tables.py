"""Tables as inputs and outputs of jobs: the job gets the service's endpoint, and a key for these tables."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable

from pai_sdk.execution.base import JobFiles
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.service.identity.users import Users
from pai_sdk.service.state.folder import Keys
from pai_sdk.service.tables.table_errors import TableError
from pai_sdk.service.tables.table_rights import NamedTable, TableRights, is_table, named_table
from pai_sdk.service.tables.table_store import TableStore
from pai_sdk.service.tables.user_tables import UserTables
from pai_sdk.storage.base import Store

__all__ = ["JobTables", "TableKeys"]

_OF_A_JOB = "job."


class TableKeys:
    """The secret of each access key id: those of the users, and one for each job that runs.

    A job's secret is derived from the service's, so nothing is stored. It opens the tables that the job's inputs
    and outputs name, as far as its owner may use them, and neither the API nor the objects.

    Args:
        keys: the service's own key.
        users: the users and their keys.
        request_of: the request of a job that runs, by its id; None for another one, whose key is refused.
        owner_of_job: the user who submitted a job, by its id.
        owner_of_table: the user who created a table, by project and name; None if there is no such table.
    """

    def __init__(
        self,
        keys: Keys,
        users: Users,
        *,
        request_of: Callable[[str], TrainingJobRequest | None],
        owner_of_job: Callable[[str], str],
        owner_of_table: Callable[[str, str], str | None],
    ) -> None:
        self._own_secret = keys.access_key_secret
        self._users = users
        self._request_of = request_of
        self._owner_of_job = owner_of_job
        self._owner_of_table = owner_of_table

    def of_job(self, job_id: str) -> tuple[str, str]:
        """The key of a job: id and secret."""
        text = f"tables of {job_id}".encode()
        return f"{_OF_A_JOB}{job_id}", hmac.new(self._own_secret.encode(), text, hashlib.sha256).hexdigest()

    def rights_of(self, key_id: str) -> TableRights:
        """The tables that a key opens.

        Raises:
            TableError: the job has ended just now, or the key was revoked.
        """
        principal = self._users.principal(key_id)
        if principal is not None:
            return TableRights(None, None, user=UserTables(principal, self._owner_of_table))
        job_id = key_id.removeprefix(_OF_A_JOB)
        request = self._request_of(job_id)
        if request is None:
            raise TableError(401, "ODPS-0410042", "The access key id is not known here.")
        owner = self._users.submitter(self._owner_of_job(job_id))
        return TableRights(
            _tables_of(channel.input_uri for channel in request.input_channels),
            _tables_of(channel.output_uri for channel in request.output_channels),
            user=UserTables(owner, self._owner_of_table),
        )

    def get(self, key_id: str) -> str | None:
        """The secret of a key; None for one that is not known."""
        secret = self._users.secret(key_id)
        if secret is not None:
            return secret
        job_id = key_id.removeprefix(_OF_A_JOB)
        return None if job_id == key_id or self._request_of(job_id) is None else self.of_job(job_id)[1]


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
            TableError: there is no such table or partition for the job's owner, or the URI names none.
        """
        named = named_table(uri)
        rights = self._keys.rights_of(self._keys.of_job(job_id)[0])
        if must_exist:
            rights.check(named.project, named.name)
            table = self._store.table(named.project, named.name)
            if named.partition and not table.partition_folder(named.partition).exists():
                partition = ",".join(f"{name}={value}" for name, value in named.partition.items())
                raise TableError(404, "NoSuchPartition", f"Partition not found: {partition}")
        else:
            rights.check_create(named.project, named.name)
        meta = json.dumps({"endpoint": self._endpoint, "path": uri})
        channel.write("meta.json", meta.encode())
        key_id, secret = self._keys.of_job(job_id)
        files.write_table_key(json.dumps({"AccessKeyId": key_id, "AccessKeySecret": secret}))


def _tables_of(uris: Iterable[str | None]) -> list[NamedTable]:
    return [named_table(uri) for uri in uris if uri is not None and is_table(uri)]

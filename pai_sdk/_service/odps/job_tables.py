"""Tables as inputs and outputs of jobs: a job receives the service's endpoint and a key for these tables."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable

from pai_sdk._data.storage.base import Store
from pai_sdk._host.execution.base import JobFiles
from pai_sdk._service.identity.principal import key_refusal
from pai_sdk._service.identity.users import Users
from pai_sdk._service.odps.table_errors import TableError
from pai_sdk._service.odps.table_rights import TableRef, TableRights, UserTables, is_table, parse_table_uri
from pai_sdk._service.odps.table_store import TableStore
from pai_sdk._service.state.folder import Keys
from pai_sdk._wire.pai.request import TrainingJobRequest

_JOB_KEY_PREFIX = "job."


class TableKeys:
    """Looks up the secret of an access key id: of a user, or of a running job.

    A job's secret is derived from the service's secret, so nothing is stored. It gives access to the tables of the
    job's inputs and outputs, as far as its owner has the rights; not to the API, nor to objects.

    Args:
        request_of: returns the request of a running job by id; None for another id, whose key is refused.
        owner_of_table: returns the user who created a table, by project and name; None if there is none.
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
        self._service_secret = keys.access_key_secret
        self._users = users
        self._request_of = request_of
        self._owner_of_job = owner_of_job
        self._owner_of_table = owner_of_table

    def of_job(self, job_id: str) -> tuple[str, str]:
        """Returns the key of a job: id and secret."""
        text = f"tables of {job_id}".encode()
        return f"{_JOB_KEY_PREFIX}{job_id}", hmac.new(
            self._service_secret.encode(), text, hashlib.sha256
        ).hexdigest()

    def rights_of(self, key_id: str) -> TableRights:
        """Returns the rights of a key; raises 401 for one that was revoked, has expired, or whose job ended."""
        principal = self._users.principal(key_id)
        if principal is not None:
            return TableRights(None, None, user=UserTables(principal, self._owner_of_table))
        job_id = key_id.removeprefix(_JOB_KEY_PREFIX)
        request = self._request_of(job_id)
        if request is None:
            raise self._refusal(key_id)
        owner = self._users.submitter(self._owner_of_job(job_id))
        return TableRights(
            _tables_of(channel.input_uri for channel in request.input_channels),
            _tables_of(channel.output_uri for channel in request.output_channels),
            user=UserTables(owner, self._owner_of_table),
        )

    def get(self, key_id: str) -> str | None:
        """Returns the secret of a key; None for an unknown one. Refuses an expired one."""
        if self._users.expired_at(key_id) is not None:
            raise self._refusal(key_id)
        secret = self._users.secret(key_id)
        if secret is not None:
            return secret
        job_id = key_id.removeprefix(_JOB_KEY_PREFIX)
        return None if job_id == key_id or self._request_of(job_id) is None else self.of_job(job_id)[1]

    def _refusal(self, key_id: str) -> TableError:
        return TableError(401, "ODPS-0410042", key_refusal(self._users, key_id).message)


class JobTables:
    """Prepares inputs and outputs that are tables."""

    def __init__(self, store: TableStore, endpoint: str, keys: TableKeys) -> None:
        self._store = store
        self._endpoint = endpoint  # as jobs reach it
        self._keys = keys

    def put(self, files: JobFiles, job_id: str, channel: Store, uri: str, must_exist: bool) -> None:
        """Writes `meta.json` into the channel's folder, and the key; with `must_exist`, checks the table first."""
        ref = parse_table_uri(uri)
        rights = self._keys.rights_of(self._keys.of_job(job_id)[0])
        if must_exist:
            rights.check(ref.project, ref.name)
            table = self._store.table(ref.project, ref.name)
            if ref.partition and not table.partition_folder(ref.partition).exists():
                partition = ",".join(f"{name}={value}" for name, value in ref.partition.items())
                raise TableError(404, "NoSuchPartition", f"Partition not found: {partition}")
        # A job may create the tables and partitions of its outputs.
        else:
            rights.check_create(ref.project, ref.name)
        meta = json.dumps({"endpoint": self._endpoint, "path": uri})
        channel.write("meta.json", meta.encode())
        key_id, secret = self._keys.of_job(job_id)
        files.write_table_key(json.dumps({"AccessKeyId": key_id, "AccessKeySecret": secret}))


def _tables_of(uris: Iterable[str | None]) -> list[TableRef]:
    return [parse_table_uri(uri) for uri in uris if uri is not None and is_table(uri)]

"""The buckets that a user can access: their own, and those of their workspaces; the service's own key: all."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import delete, select

from pai_sdk._service.identity.principal import KeyRing, Principal, Right, key_refusal
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import BucketOwnerRow
from pai_sdk.errors import StorageError

_READING = ("GET", "HEAD", "OPTIONS")


class BucketRights:
    """The owners of buckets. A bucket without an owner belongs to the service's own key."""

    def __init__(self, database: Database, keys: KeyRing) -> None:
        self._database = database
        self._keys = keys

    def secret(self, key_id: str) -> str | None:
        """Returns the secret of a key; None for an unknown one. Refuses an expired one."""
        if self._keys.expired_at(key_id) is not None:
            raise self._refusal_of(key_id)
        return self._keys.secret(key_id)

    def is_allowed(self, principal: Principal, bucket: str, right: Right) -> bool:
        """Returns whether a user may read (`read`) or change (`submit`) the content of a bucket."""
        if principal.has_right("admin"):
            return True
        if not principal.has_right(right):
            return False
        with self._database.read() as session:
            row = session.get(BucketOwnerRow, bucket)
        if row is None:
            return False
        is_members = row.workspace_id is not None and principal.has_right_in(row.workspace_id, right)
        return is_members or row.owner == principal.user

    def opens_all(self, key_id: str) -> bool:
        """Returns whether the key is the service's own or an administrator's; needs no database."""
        principal = self._keys.principal(key_id)
        return principal is not None and principal.has_right("admin")

    def check(self, key_id: str, method: str, buckets: Iterable[str]) -> None:
        """Checks the rights of a request; the method applies to the first bucket, the others are read."""
        principal = self._principal(key_id)
        right: Right = "read" if method in _READING else "submit"
        for bucket in buckets:
            # A missing bucket is refused alike, so that a refusal does not say whether it exists.
            if not self.is_allowed(principal, bucket, right):
                raise _refusal("AccessDenied", "The access key has no access to this bucket.")
            right = "read"

    def claim(self, key_id: str, bucket: str, *, exists: bool) -> None:
        """Makes a user the owner of a new bucket; does nothing if they own it already."""
        principal = self._principal(key_id)
        if principal.has_right("admin"):
            return
        if not principal.has_right("submit"):
            raise _refusal("AccessDenied", "The access key may only read.")
        with self._database.write() as session:
            row = session.get(BucketOwnerRow, bucket)
            if row is None and not exists:
                session.add(BucketOwnerRow(bucket=bucket, owner=principal.user))
            elif row is None or row.owner != principal.user:
                raise _refusal(
                    "BucketAlreadyExists", "The bucket name is in use; choose another.", status_code=409
                )

    def give(self, bucket: str, *, owner: str) -> None:
        """Assigns a bucket to a user."""
        with self._database.write() as session:
            session.merge(BucketOwnerRow(bucket=bucket, owner=owner, workspace_id=None))

    def forget(self, bucket: str) -> None:
        """Removes the owner of a deleted bucket."""
        with self._database.write() as session:
            session.execute(delete(BucketOwnerRow).where(BucketOwnerRow.bucket == bucket))

    def visible(self, key_id: str, buckets: Collection[str]) -> set[str]:
        """Returns those of the buckets that the key may read."""
        principal = self._principal(key_id)
        if principal.has_right("admin"):
            return set(buckets)
        with self._database.read() as session:
            rows = list(session.scalars(select(BucketOwnerRow)))
        owned = {row.bucket for row in rows if row.owner == principal.user}
        shared = {
            row.bucket for row in rows if row.workspace_id and principal.has_right_in(row.workspace_id, "read")
        }
        return set(buckets) & (owned | shared)

    def _principal(self, key_id: str) -> Principal:
        principal = self._keys.principal(key_id)
        # Revoked or expired after its signature was checked.
        if principal is None:
            raise self._refusal_of(key_id)
        return principal

    def _refusal_of(self, key_id: str) -> StorageError:
        return _refusal("InvalidAccessKeyId", key_refusal(self._keys, key_id).message)


def _refusal(code: str, message: str, *, status_code: int = 403) -> StorageError:
    """Returns an error with a code of OSS."""
    return StorageError(message, status_code=status_code, code=code)

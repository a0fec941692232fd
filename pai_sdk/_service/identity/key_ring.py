"""The access keys of a service, for code that checks signatures."""

from __future__ import annotations

from typing import Protocol

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.state.folder import Keys


class KeyRing(Protocol):
    """Returns the secret and the user of each key. Safe to use from several threads."""

    def secret(self, key_id: str) -> str | None:
        """Returns the secret of a key; None if there is no such key."""
        ...

    def principal(self, key_id: str) -> Principal | None:
        """Returns the user of a key with their rights; None if there is no such key."""
        ...


class ServiceKey:
    """The key ring of a service without users, with the service's own key."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def secret(self, key_id: str) -> str | None:
        """Returns the secret; None for any other key."""
        return self._keys.access_key_secret if key_id == self._keys.access_key_id else None

    def principal(self, key_id: str) -> Principal | None:
        """Returns a principal with all rights; None for any other key."""
        return Principal.operator(key_id) if key_id == self._keys.access_key_id else None

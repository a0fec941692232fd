"""The keys of a service without users."""

from __future__ import annotations

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.state.folder import Keys


class OwnKey:
    """A key ring with the service's own key."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def secret(self, key_id: str) -> str | None:
        return self._keys.access_key_secret if key_id == self._keys.access_key_id else None

    def principal(self, key_id: str) -> Principal | None:
        return Principal.operator(key_id) if key_id == self._keys.access_key_id else None

    def expired_at(self, key_id: str) -> float | None:
        return None

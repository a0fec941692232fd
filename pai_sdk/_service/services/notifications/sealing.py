"""Encrypts targets for the database, whose copies must not give access to them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from pai_sdk._wire.notifications import NotificationTarget

_NONCE_BYTES = 12
_PURPOSE = b"target of notifications"


class SealError(Exception):
    """A target cannot be decrypted: the key of the service was replaced, or the database was damaged."""


class Sealer:
    """Encrypts with AES-GCM, by a key that is derived from the service's own secret."""

    def __init__(self, secret: str) -> None:
        self._key = hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).digest()

    @cached_property
    def is_available(self) -> bool:
        """Returns False where `cryptography` is missing, as after an upgrade without the new extra."""
        return find_spec("cryptography") is not None

    def seal(self, target: NotificationTarget) -> str:
        """Returns the encrypted target."""
        nonce = os.urandom(_NONCE_BYTES)
        content = target.model_dump_json(by_alias=True, exclude_none=True).encode()
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, content, _PURPOSE)).decode()

    def unseal(self, sealed: str) -> NotificationTarget:
        """Returns a target; raises SealError if it was encrypted by another key."""
        from cryptography.exceptions import InvalidTag  # for weight

        content = base64.b64decode(sealed)
        try:
            plain = self._cipher.decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], _PURPOSE)
        except InvalidTag:
            raise SealError("the target was stored under another key of the service") from None
        return NotificationTarget.model_validate_json(plain)

    def identity(self, target: NotificationTarget) -> str:
        """Returns a string that is equal for equal receivers and reveals nothing of them."""
        # With secret and headers, which may choose the receiver: messages of one identity are folded.
        headers = sorted((target.headers or {}).items())
        text = json.dumps([target.kind, target.url, target.secret, headers])
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()[:32]

    @cached_property
    def _cipher(self) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # for weight

        return AESGCM(self._key)

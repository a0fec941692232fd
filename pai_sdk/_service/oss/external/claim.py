"""Records which external store has the contents of a service's objects, and that it belongs to this service."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from pai_sdk._core.files import replace_file
from pai_sdk._data.storage.base import Store
from pai_sdk.errors import ObjectNotFoundError, PaiError, ServiceStartError

CLAIM_FILE = "external.json"
"""The file in the objects' folder with the URI of the external store and the id of the service."""

_MARKER = "pai-sdk-objects.json"


def read_claimed_uri(root: Path) -> str:
    """Returns the URI of the store that has contents of this folder; empty if there is none."""
    return _read_claim(root).get("uri", "")


def _read_claim(root: Path) -> dict[str, str]:
    try:
        content = json.loads((root / CLAIM_FILE).read_text(encoding="utf-8"))
        return {"uri": str(content["uri"]), "service": str(content["service"])}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise ServiceStartError(f"{root / CLAIM_FILE} cannot be read; restore it from a backup") from error


def claim(root: Path, store: Store, *, is_referenced: bool) -> None:
    """Marks the store as owned by this service; a store in use by `is_referenced` rows must have a marker."""
    claimed = _read_claim(root)
    # The local file is written before the marker: a process that dies in between claims the store again.
    if claimed.get("uri") != store.uri:
        claimed = {"uri": store.uri, "service": uuid.uuid4().hex}
        replace_file(root / CLAIM_FILE, json.dumps(claimed) + "\n", durable=True, mode=0o600)
    try:
        owner = _owner_of(store)
        # The index refers to contents in the store, so a claim was made earlier.
        if not owner and is_referenced:
            raise ServiceStartError(
                f"{store.uri} has no {_MARKER}, but should have contents of objects; "
                "is it another bucket of that name?"
            )
        if not owner:
            # Two services may start at once: the first marker stays, and the loser reads the other's id.
            store.create(_MARKER, json.dumps({"service": claimed["service"]}).encode())
            owner = _owner_of(store)
    except ServiceStartError:
        raise
    except PaiError as error:
        raise ServiceStartError(f"the store for objects cannot be used: {error}") from error
    if owner != claimed["service"]:
        raise ServiceStartError(
            f"{store.uri} has the objects of another service; give --objects another prefix, or, if that service "
            f"is gone for good, delete {store.uri}{_MARKER}"
        )


def _owner_of(store: Store) -> str:
    """Returns the id of the service that uses the store; empty if there is none."""
    try:
        return str(json.loads(b"".join(store.read(_MARKER)))["service"])
    except ObjectNotFoundError:
        return ""
    except (ValueError, KeyError, TypeError):
        return "unknown"

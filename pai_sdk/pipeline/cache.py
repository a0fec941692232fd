"""Earlier executions of steps, by what their outputs depend on.

<step>/<hash>.json   an execution: its outputs, its result
<step>/last.json     what the last execution depended on; for the reason why it does not count
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pai_sdk.errors import ObjectNotFoundError, PaiError
from pai_sdk.pipeline.fingerprints import changes, digest
from pai_sdk.pipeline.records import StepRecord
from pai_sdk.storage.store import Store, open_store

__all__ = ["StepCache", "has_files"]


class StepCache:
    """The executions of a pipeline's steps. Safe for many threads.

    Args:
        store: the folder.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, name: str, parts: Mapping[str, str], session: Any) -> tuple[dict[str, Any] | None, str]:
        """An execution that counts, or None and why there is none.

        Args:
            name: of the step.
            parts: what its outputs depend on.
            session: whose keys look whether the outputs are still there.
        """
        found = self._read(self._entry(name, parts))
        if found is None or not found.keys() >= {"execution", "job_id", "outputs", "result", "filled"}:
            last = self._read(f"{_folder(name)}/last.json")
            return None, changes(None if last is None else last.get("parts", {}), parts)
        gone = [channel for channel in found["filled"] if not has_files(found["outputs"][channel], session)]
        if gone:
            return None, f"the output {gone[0]} of the earlier execution is gone"
        return found, f"code, parameters and inputs are those of {found['execution']}"

    def put(self, record: StepRecord, filled: list[str]) -> None:
        """Note an execution that has succeeded.

        Args:
            record: of the step.
            filled: the outputs that have files.
        """
        facts = {
            "execution": record.execution,
            "job_id": record.job_id,
            "outputs": record.outputs,
            "result": record.result,
            "parts": record.parts,
            "filled": filled,
        }
        content = json.dumps(facts).encode()
        self._store.write(self._entry(record.name, record.parts), content)
        self._store.write(f"{_folder(record.name)}/last.json", content)

    def _entry(self, name: str, parts: Mapping[str, str]) -> str:
        return f"{_folder(name)}/{digest(dict(parts))}.json"

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            found = json.loads(b"".join(self._store.read(path)))
        except (ObjectNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) else None


def has_files(uri: str, session: Any) -> bool:
    """Whether there is a file in a folder."""
    try:
        return next(iter(open_store(uri, session).list()), None) is not None
    except PaiError:
        return False


def _folder(name: str) -> str:
    return quote(name, safe="")

"""Stores earlier executions of steps, by a hash of all inputs on which their outputs depend.

<step>/<hash>.json   an execution: its outputs, its result
<step>/last.json     the inputs of the last execution, for the reason for which it is not valid any more
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pai_sdk._client.code.job_package import CHANNEL
from pai_sdk._client.pipeline.fingerprints import changes, digest, files_identity
from pai_sdk._data.pipelines.records import StepRecord
from pai_sdk._data.storage.store import Store
from pai_sdk.errors import ObjectNotFoundError

_PACKAGE_PART = f"input {CHANNEL}"


class StepCache:
    """The executions of a pipeline's steps. Safe for many threads."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, name: str, parts: Mapping[str, str], session: Any) -> tuple[dict[str, Any] | None, str]:
        """Returns a valid earlier execution, or None and the reason for which there is none."""
        execution = self._read(self._entry(name, parts))
        if execution is None:
            execution = self._recorded_with_package(name, parts)
        if execution is None or not execution.keys() >= {"execution", "job_id", "outputs", "result", "files"}:
            last = self._read(f"{_folder(name)}/last.json")
            return None, changes(None if last is None else last.get("parts", {}), parts)
        for channel, before in execution["files"].items():
            now = files_identity(execution["outputs"][channel], session)
            if now != before:
                reason = "gone" if now is None else "changed"
                return None, f"the output {channel} of the earlier execution is {reason}"
        return execution, f"code, parameters and inputs are those of {execution['execution']}"

    def put(self, record: StepRecord, session: Any) -> None:
        """Records an execution that has succeeded."""
        files = {channel: files_identity(uri, session) for channel, uri in record.outputs.items()}
        entry = {
            "execution": record.execution,
            "job_id": record.job_id,
            "outputs": record.outputs,
            "result": record.result,
            "parts": record.parts,
            "files": {channel: identity for channel, identity in files.items() if identity is not None},
        }
        content = json.dumps(entry).encode()
        self._store.write(self._entry(record.name, record.parts), content)
        self._store.write(f"{_folder(record.name)}/last.json", content)

    def _recorded_with_package(self, name: str, parts: Mapping[str, str]) -> dict[str, Any] | None:
        """Returns the last execution if only the package for jobs differs, which earlier releases count."""
        last = self._read(f"{_folder(name)}/last.json") or {}
        recorded = last.get("parts")
        if not isinstance(recorded, dict) or _PACKAGE_PART not in recorded:
            return None
        return last if {**recorded, _PACKAGE_PART: ""} == {**parts, _PACKAGE_PART: ""} else None

    def _entry(self, name: str, parts: Mapping[str, str]) -> str:
        return f"{_folder(name)}/{digest(dict(parts))}.json"

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            entry = json.loads(b"".join(self._store.read(path)))
        except (ObjectNotFoundError, ValueError):
            return None
        return entry if isinstance(entry, dict) else None


def _folder(name: str) -> str:
    return quote(name, safe="")

"""Registered algorithms and their versions."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field, field_validator

from pai_sdk._wire.base import Received, Sent
from pai_sdk._wire.pai.definitions import AlgorithmDefinition
from pai_sdk._wire.pai.wire import NullableList


class AlgorithmChanges(Sent):
    """The form of UpdateAlgorithm; a field that is None stays as it is."""

    algorithm_description: str | None = None
    display_name: str | None = None


class NewAlgorithm(AlgorithmChanges):
    """The form of CreateAlgorithm."""

    algorithm_name: str
    workspace_id: str | None = None


class AlgorithmRecord(Received):
    """A registered algorithm, as the service describes it."""

    algorithm_id: str
    algorithm_name: str | None = None
    algorithm_provider: str | None = None
    algorithm_description: str | None = None
    display_name: str | None = None
    workspace_id: str | None = None
    user_id: str | None = None
    tenant_id: str | None = None
    gmt_create_time: str | None = None
    gmt_modified_time: str | None = None


class AlgorithmList(Received):
    """A page of ListAlgorithms."""

    algorithms: NullableList[AlgorithmRecord]
    total_count: int | None = None


class AlgorithmVersionForm(Received):
    """The form of CreateAlgorithmVersion and UpdateAlgorithmVersion.

    PAI's clients send the spec as JSON text, unlike in CreateTrainingJob; the service also accepts an object.
    """

    algorithm_spec: Any = None


class AlgorithmVersionRecord(Received):
    """One version of a registered algorithm. A list shows it without its spec."""

    algorithm_id: str
    algorithm_version: str
    algorithm_name: str | None = None
    algorithm_provider: str | None = None
    algorithm_spec: AlgorithmDefinition | None = Field(default=None)
    user_id: str | None = None
    tenant_id: str | None = None
    gmt_create_time: str | None = None
    gmt_modified_time: str | None = None

    @field_validator("algorithm_spec", mode="before")
    @classmethod
    def _as_object(cls, value: object) -> object:
        # In requests a spec is JSON text; responses have it as an object, but other services may send text.
        return json.loads(value) if isinstance(value, str) else value


class AlgorithmVersionList(Received):
    """A page of ListAlgorithmVersions."""

    algorithm_versions: NullableList[AlgorithmVersionRecord]
    total_count: int | None = None

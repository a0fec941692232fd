"""Registered algorithms on the wire. Creating and updating sends forms, as PAI's official client does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from pai_sdk._client.api.resource import Resource
from pai_sdk._client.api.responses import read_model
from pai_sdk._core.names.hints import name_hint
from pai_sdk._wire.algorithms import (
    AlgorithmChanges,
    AlgorithmList,
    AlgorithmRecord,
    AlgorithmVersionForm,
    AlgorithmVersionList,
    AlgorithmVersionRecord,
    NewAlgorithm,
)
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.pai.spec import AlgorithmSpec
from pai_sdk._wire.pai.wire import problems_of
from pai_sdk.errors import InvalidInputError, Problem

_ALGORITHMS = "/api/v1/algorithms"
_ALGORITHM = _ALGORITHMS + "/{algorithm_id}"
_VERSIONS = _ALGORITHM + "/versions"
_VERSION = _VERSIONS + "/{algorithm_version}"


class Algorithms(Resource):
    """Actions on registered algorithms; `session.algorithms`.

    Args:
        transport: to the PAI API, version `training_jobs.VERSION`.
        workspace_id: workspace of the algorithms, unless a call names another.

    Example:
        >>> algorithms = session.algorithms  # doctest: +SKIP
        >>> algorithm_id = algorithms.create("digits")  # doctest: +SKIP
        >>> algorithms.create_version(algorithm_id, "v1", spec)  # doctest: +SKIP
    """

    # ---- algorithms ----

    def create(self, name: str, *, description: str | None = None, display_name: str | None = None) -> str:
        """Calls CreateAlgorithm; returns the id. Raises `ConflictError` if there is an algorithm of this name."""
        algorithm = NewAlgorithm(
            algorithm_name=name,
            algorithm_description=description,
            display_name=display_name,
            workspace_id=self._workspace_id,
        )
        # Names are unique: the service would refuse a second delivery.
        response = self._call("CreateAlgorithm", "POST", _ALGORITHMS, form=algorithm.to_wire(), idempotent=False)
        return read_model(AlgorithmRecord, response).algorithm_id

    def get(self, algorithm_id: str) -> AlgorithmRecord:
        """Calls GetAlgorithm."""
        params = {"algorithm_id": algorithm_id}
        return read_model(AlgorithmRecord, self._call("GetAlgorithm", "GET", _ALGORITHM, params), **params)

    def list(
        self,
        *,
        name: str | None = None,
        provider: str | None = None,
        algorithm_id: str | None = None,
        page_size: int = 100,
    ) -> Iterator[AlgorithmRecord]:
        """Calls ListAlgorithms, all pages.

        Args:
            name: only algorithms with this string in their name.
            provider: only algorithms of this provider, of any workspace; None for those of this workspace.
            algorithm_id: only this algorithm.
            page_size: algorithms per page.
        """
        query = wire_names(
            algorithm_name=name,
            algorithm_provider=provider,
            algorithm_id=algorithm_id,
            workspace_id=self._workspace_id if provider is None else None,
        )
        names = AlgorithmRecord, AlgorithmList, "ListAlgorithms"
        return self._list(*names, _ALGORITHMS, query=query, page_size=page_size)

    def find(self, name: str, provider: str | None = None) -> AlgorithmRecord:
        """Returns the algorithm of exactly that name; `InvalidInputError` if several providers have one."""
        candidates = [*self.list(name=name, provider=provider)]
        # The search of the service also matches parts of names.
        matches = [algorithm for algorithm in candidates if algorithm.algorithm_name == name]
        if len(matches) == 1:
            return matches[0]
        if matches:
            providers = ", ".join(sorted({str(algorithm.algorithm_provider) for algorithm in matches}))
            raise InvalidInputError(
                [
                    Problem(
                        "algorithm_provider",
                        f"{len(matches)} algorithms are named {name!r}",
                        f"available: {providers}",
                    )
                ]
            )
        available = candidates or [*self.list(provider=provider)]
        hint = name_hint(name, sorted({a.algorithm_name for a in available if a.algorithm_name}))
        whose = f" of provider {provider!r}" if provider else " in the workspace"
        if not hint and provider is None:
            hint = "for PAI's own, algorithm_provider='pai'"
        raise InvalidInputError([Problem("algorithm_name", f"there is no algorithm {name!r}{whose}", hint)])

    def update(
        self, algorithm_id: str, *, description: str | None = None, display_name: str | None = None
    ) -> None:
        """Calls UpdateAlgorithm; None leaves a field unchanged."""
        changes = AlgorithmChanges(algorithm_description=description, display_name=display_name)
        self._call("UpdateAlgorithm", "PUT", _ALGORITHM, {"algorithm_id": algorithm_id}, form=changes.to_wire())

    def delete(self, algorithm_id: str) -> None:
        """Calls DeleteAlgorithm: deletes it with all its versions."""
        self._call("DeleteAlgorithm", "DELETE", _ALGORITHM, {"algorithm_id": algorithm_id})

    # ---- versions ----

    def create_version(
        self, algorithm_id: str, version: str, spec: AlgorithmSpec | Mapping[str, Any]
    ) -> tuple[str, str]:
        """Calls CreateAlgorithmVersion; returns (id, version). Raises `ConflictError` if the version exists."""
        params = {"algorithm_id": algorithm_id, "algorithm_version": version}
        form = _spec_form(spec)
        response = self._call("CreateAlgorithmVersion", "POST", _VERSION, params, form=form, idempotent=False)
        record = read_model(AlgorithmVersionRecord, response, **params)
        return record.algorithm_id, record.algorithm_version

    def get_version(self, algorithm_id: str, version: str) -> AlgorithmVersionRecord:
        """Calls GetAlgorithmVersion; returns the version with its spec."""
        params = {"algorithm_id": algorithm_id, "algorithm_version": version}
        response = self._call("GetAlgorithmVersion", "GET", _VERSION, params)
        return read_model(AlgorithmVersionRecord, response, **params)

    def list_versions(self, algorithm_id: str, *, page_size: int = 100) -> Iterator[AlgorithmVersionRecord]:
        """ListAlgorithmVersions, all pages."""
        names = AlgorithmVersionRecord, AlgorithmVersionList, "ListAlgorithmVersions"
        params = {"algorithm_id": algorithm_id}
        return self._list(*names, _VERSIONS, params, page_size=page_size, algorithm_id=algorithm_id)

    def latest_version(self, algorithm_id: str) -> AlgorithmVersionRecord | None:
        """Returns the version that was created last; None without one."""
        # Of versions from the same second, or without a time, the highest one.
        return max(self.list_versions(algorithm_id), key=_age, default=None)

    def update_version(self, algorithm_id: str, version: str, spec: AlgorithmSpec | Mapping[str, Any]) -> None:
        """Calls UpdateAlgorithmVersion: replaces the spec, for later jobs."""
        params = {"algorithm_id": algorithm_id, "algorithm_version": version}
        self._call("UpdateAlgorithmVersion", "PUT", _VERSION, params, form=_spec_form(spec))

    def delete_version(self, algorithm_id: str, version: str) -> None:
        """Calls DeleteAlgorithmVersion."""
        params = {"algorithm_id": algorithm_id, "algorithm_version": version}
        self._call("DeleteAlgorithmVersion", "DELETE", _VERSION, params)


def _spec_form(spec: AlgorithmSpec | Mapping[str, Any]) -> dict[str, Any]:
    """Returns the form with the checked spec as JSON."""
    try:
        return AlgorithmVersionForm(algorithm_spec=AlgorithmSpec.model_validate(spec).to_json()).to_dict()
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, "algorithm_spec")) from None


def _age(version: AlgorithmVersionRecord) -> tuple[str, list[tuple[int, str]]]:
    # ISO 8601 in UTC sorts as text; only some responses have fractions of a second.
    second = (version.gmt_create_time or "")[:19]
    parts = re.findall(r"\d+|[^\d.]+", version.algorithm_version)
    # By numbers: `v1.10` comes after `v1.9`.
    return second, [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]

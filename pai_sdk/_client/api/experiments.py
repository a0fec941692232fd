"""Experiments on the wire: an experiment groups jobs under a name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pai_sdk._client.api.paging import pages
from pai_sdk._client.api.responses import read_items, read_model
from pai_sdk._client.api.transport import ApiResponse, Transport
from pai_sdk._core.names.hints import name_hint
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.experiments import (
    Accessibility,
    ExperimentChanges,
    ExperimentList,
    ExperimentRecord,
    NewExperiment,
)
from pai_sdk._wire.labels import NewLabels, label_list
from pai_sdk.errors import InvalidInputError, Problem

__all__ = ["Accessibility", "ExperimentRecord", "Experiments"]

_EXPERIMENTS = "/api/v1/experiments"
_EXPERIMENT = _EXPERIMENTS + "/{experiment_id}"
_LABELS = _EXPERIMENT + "/labels"


class Experiments:
    """Actions on experiments; `session.experiments`.

    Args:
        transport: to the workspace API, version `workspaces.VERSION`.
        workspace_id: workspace of the experiments; None for the service's default one.

    Example:
        >>> experiment_id = session.experiments.create("digits")  # doctest: +SKIP
        >>> [each.name for each in session.experiments.list()]  # doctest: +SKIP
        ['digits']
    """

    def __init__(self, transport: Transport, workspace_id: str | None = None) -> None:
        self._transport = transport
        self._workspace_id = workspace_id

    def create(
        self,
        name: str,
        *,
        artifact_uri: str | None = None,
        accessibility: Accessibility | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> str:
        """Calls CreateExperiment; returns the id. Raises `ConflictError` if the name exists in the workspace."""
        experiment = NewExperiment(
            name=name,
            workspace_id=self._workspace_id,
            artifact_uri=artifact_uri,
            accessibility=accessibility,
            labels=label_list(labels) if labels else None,
        )
        action = "CreateExperiment"
        # Names are unique in a workspace, so a second delivery is refused and makes no second experiment.
        response = self._transport.call(action, "POST", _EXPERIMENTS, body=experiment.to_wire(), idempotent=False)
        return read_model(ExperimentRecord, response, action).experiment_id

    def get(self, experiment_id: str) -> ExperimentRecord:
        """Calls GetExperiment."""
        response = self._call("GetExperiment", "GET", _EXPERIMENT, experiment_id)
        return read_model(ExperimentRecord, response, "GetExperiment", experiment_id=experiment_id)

    def list(
        self,
        *,
        name: str | None = None,
        exact: bool = False,
        labels: Mapping[str, str] | None = None,
        page_size: int = 100,
    ) -> Iterator[ExperimentRecord]:
        """Calls ListExperiment, all pages, the newest first.

        Args:
            name: only experiments with this string in their name.
            exact: only the experiment of exactly that name.
            labels: only experiments that have all of these labels.
            page_size: experiments per page.
        """
        query = wire_names(
            name=name,
            options=json.dumps({"match_name_exactly": "true"}) if exact else None,
            labels=",".join(f"{key}={value}" for key, value in labels.items()) if labels else None,
            workspace_id=self._workspace_id,
            sort_by="GmtCreateTime",
            order="DESC",
        )

        def fetch(number: int, size: int) -> Mapping[str, Any]:
            paged = {**query, **wire_names(page_number=number, page_size=size)}
            return self._transport.call("ListExperiment", "GET", _EXPERIMENTS, query=paged).json

        return read_items(ExperimentRecord, pages(fetch, ExperimentList, page_size=page_size), "ListExperiment")

    def find(self, name: str) -> ExperimentRecord:
        """Returns the experiment of exactly that name; `InvalidInputError` suggests the nearest name."""
        # A service without the option `match_name_exactly` also returns names that contain this one.
        for experiment in self.list(name=name, exact=True):
            if experiment.name == name:
                return experiment
        names = [experiment.name for experiment in self.list() if experiment.name]
        raise InvalidInputError([Problem("name", f"there is no experiment {name!r}", name_hint(name, names))])

    def update(
        self, experiment_id: str, *, name: str | None = None, accessibility: Accessibility | None = None
    ) -> None:
        """Calls UpdateExperiment; None leaves a field unchanged."""
        changes = ExperimentChanges(name=name, accessibility=accessibility)
        self._call("UpdateExperiment", "PUT", _EXPERIMENT, experiment_id, body=changes.to_wire())

    def delete(self, experiment_id: str) -> None:
        """Calls DeleteExperiment."""
        self._call("DeleteExperiment", "DELETE", _EXPERIMENT, experiment_id)

    def set_labels(self, experiment_id: str, labels: Mapping[str, str]) -> None:
        """SetExperimentLabels: add labels, or replace those of the same key."""
        body = NewLabels(labels=label_list(labels)).to_wire()
        # Idempotent: a second delivery sets the same labels.
        self._call("SetExperimentLabels", "POST", _LABELS, experiment_id, body=body, idempotent=True)

    def delete_label(self, experiment_id: str, key: str) -> None:
        """Calls DeleteExperimentLabel."""
        params = {"experiment_id": experiment_id, "key": key}
        self._transport.call("DeleteExperimentLabel", "DELETE", _LABELS + "/{key}", params)

    def _call(
        self,
        action: str,
        method: str,
        path: str,
        experiment_id: str,
        **options: Any,  # of Transport.call
    ) -> ApiResponse:
        return self._transport.call(action, method, path, {"experiment_id": experiment_id}, **options)

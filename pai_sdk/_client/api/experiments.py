"""Experiments on the wire: an experiment groups jobs under a name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pai_sdk._client.api.resource import Resource
from pai_sdk._client.api.responses import read_model
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

_EXPERIMENTS = "/api/v1/experiments"
_EXPERIMENT = _EXPERIMENTS + "/{experiment_id}"
_LABELS = _EXPERIMENT + "/labels"


class Experiments(Resource):
    """Actions on experiments; `session.experiments`.

    Args:
        transport: to the workspace API, version `workspaces.VERSION`.
        workspace_id: workspace of the experiments; None for the service's default one.

    Example:
        >>> experiment_id = session.experiments.create("digits")  # doctest: +SKIP
        >>> [each.name for each in session.experiments.list()]  # doctest: +SKIP
        ['digits']
    """

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
        # Names are unique in a workspace, so a second delivery is refused and makes no second experiment.
        body = experiment.to_wire()
        response = self._call("CreateExperiment", "POST", _EXPERIMENTS, body=body, idempotent=False)
        return read_model(ExperimentRecord, response).experiment_id

    def get(self, experiment_id: str) -> ExperimentRecord:
        """Calls GetExperiment."""
        params = {"experiment_id": experiment_id}
        return read_model(ExperimentRecord, self._call("GetExperiment", "GET", _EXPERIMENT, params), **params)

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
        names = ExperimentRecord, ExperimentList, "ListExperiment"
        return self._list(*names, _EXPERIMENTS, query=query, page_size=page_size)

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
        params = {"experiment_id": experiment_id}
        self._call("UpdateExperiment", "PUT", _EXPERIMENT, params, body=changes.to_wire())

    def delete(self, experiment_id: str) -> None:
        """Calls DeleteExperiment."""
        self._call("DeleteExperiment", "DELETE", _EXPERIMENT, {"experiment_id": experiment_id})

    def set_labels(self, experiment_id: str, labels: Mapping[str, str]) -> None:
        """SetExperimentLabels: add labels, or replace those of the same key."""
        body = NewLabels(labels=label_list(labels)).to_wire()
        # Idempotent: a second delivery sets the same labels.
        params = {"experiment_id": experiment_id}
        self._call("SetExperimentLabels", "POST", _LABELS, params, body=body, idempotent=True)

    def delete_label(self, experiment_id: str, key: str) -> None:
        """Calls DeleteExperimentLabel."""
        params = {"experiment_id": experiment_id, "key": key}
        self._call("DeleteExperimentLabel", "DELETE", _LABELS + "/{key}", params)

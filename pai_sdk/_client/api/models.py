"""Registered models on the wire: a name, versions, and for each version the specs of what can be done with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pai_sdk._client.api.resource import Resource
from pai_sdk._client.api.responses import read_model
from pai_sdk._core.names.hints import name_hint
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.labels import label_list
from pai_sdk._wire.models import (
    ModelChanges,
    ModelList,
    ModelRecord,
    ModelVersionFields,
    ModelVersionList,
    ModelVersionRecord,
    NewModel,
    NewModelVersion,
)
from pai_sdk._wire.pai.recipes import check_model_uri, check_recipes
from pai_sdk.errors import InvalidInputError, NotFoundError, Problem

_MODELS = "/api/v1/models"
_MODEL = _MODELS + "/{model_id}"
_VERSIONS = _MODEL + "/versions"
_VERSION = _VERSIONS + "/{version}"

_PROVIDERS = "Alibaba Cloud offers models of the provider 'pai'; those of the workspace need no provider"


class Models(Resource):
    """Actions on registered models; `session.models`.

    Args:
        transport: to the workspace API, version `workspaces.VERSION`.
        workspace_id: workspace of the models; None for the service's default one.

    Example:
        >>> model_id = session.models.create("digits", task="classification")  # doctest: +SKIP
        >>> session.models.create_version(model_id, "oss://models/digits/", training_spec=spec)  # doctest: +SKIP
        '0.1.0'
    """

    # ---- models ----

    def create(
        self,
        name: str,
        *,
        description: str | None = None,
        task: str | None = None,
        domain: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> str:
        """Calls CreateModel; returns the id. Raises `ConflictError` if the name exists in the workspace."""
        model = NewModel(
            model_name=name,
            workspace_id=self._workspace_id,
            model_description=description,
            task=task,
            domain=domain,
            labels=label_list(labels) if labels else None,
        )
        # Names are unique in a workspace, so a second delivery is refused and makes no second model.
        response = self._call("CreateModel", "POST", _MODELS, body=model.to_wire(), idempotent=False)
        return read_model(ModelRecord, response).model_id

    def get(self, model_id: str) -> ModelRecord:
        """Calls GetModel; returns the model with its newest version."""
        params = {"model_id": model_id}
        return read_model(ModelRecord, self._call("GetModel", "GET", _MODEL, params), **params)

    def list(
        self,
        *,
        name: str | None = None,
        exact: bool = False,
        provider: str | None = None,
        task: str | None = None,
        page_size: int = 100,
    ) -> Iterator[ModelRecord]:
        """Calls ListModels, all pages, the newest first; each model with its newest version.

        Args:
            name: only models with this string in their name.
            exact: only the model of exactly that name.
            provider: only models of this provider, of any workspace: `pai`, `huggingface`; None for those of this
                workspace.
            task: only models for this task.
            page_size: models per page.
        """
        query = wire_names(
            model_name=f'"{name}"' if name and exact else name,
            provider=provider,
            task=task,
            workspace_id=self._workspace_id if provider is None else None,
            sort_by="GmtCreateTime",
            order="DESC",
        )
        return self._list(ModelRecord, ModelList, "ListModels", _MODELS, query=query, page_size=page_size)

    def find(self, name: str, provider: str | None = None) -> ModelRecord:
        """Returns the model of exactly that name; `InvalidInputError` suggests the nearest name."""
        for model in self.list(name=name, exact=True, provider=provider):
            if model.model_name == name:
                return model
        names = [model.model_name for model in self.list(provider=provider) if model.model_name]
        owner = f" of provider {provider!r}" if provider else " in the workspace"
        hint = name_hint(name, names)
        if not hint:
            hint = "register it: session.models.create(…)" if provider is None else _PROVIDERS
        raise InvalidInputError([Problem("model_name", f"there is no model {name!r}{owner}", hint)])

    def find_version(
        self, name: str, version: str | None = None, provider: str | None = None
    ) -> tuple[ModelRecord, ModelVersionRecord]:
        """Returns the model of exactly that name, and a version: the newest one when `version` is None."""
        model = self.find(name, provider)
        if version is None:
            newest = model.latest_version or next(self.list_versions(model.model_id), None)
            if newest is None:
                hint = "session.models.create_version(…)"
                raise InvalidInputError([Problem("model_name", f"the model {name!r} has no version yet", hint)])
            return model, newest
        try:
            return model, self.get_version(model.model_id, version)
        except NotFoundError:
            versions = [other.version_name for other in self.list_versions(model.model_id) if other.version_name]
            message = f"the model {name!r} has no version {version!r}"
            raise InvalidInputError([Problem("model_version", message, name_hint(version, versions))]) from None

    def update(
        self,
        model_id: str,
        *,
        description: str | None = None,
        task: str | None = None,
        domain: str | None = None,
    ) -> None:
        """Calls UpdateModel; None leaves a field unchanged."""
        changes = ModelChanges(model_description=description, task=task, domain=domain)
        self._call("UpdateModel", "PUT", _MODEL, {"model_id": model_id}, body=changes.to_wire())

    def delete(self, model_id: str) -> None:
        """Calls DeleteModel: deletes it with its versions; their files stay."""
        self._call("DeleteModel", "DELETE", _MODEL, {"model_id": model_id})

    # ---- versions ----

    def create_version(
        self,
        model_id: str,
        uri: str,
        version: str | None = None,
        *,
        training_spec: Mapping[str, Any] | None = None,
        description: str | None = None,
        format_type: str | None = None,
        framework_type: str | None = None,
        labels: Mapping[str, str] | None = None,
        evaluation_spec: Mapping[str, Any] | None = None,
        compression_spec: Mapping[str, Any] | None = None,
    ) -> str:
        """Calls CreateModelVersion; returns the name of the version.

        Args:
            model_id: id of the model.
            uri: location of its files: `oss://bucket/folder/`, or another source, such as `modelscope://…`.
            version: name of the version; None for the next number.
            training_spec: how it is trained further, as `ModelTrainingRecipe` reads it.
            description: free text for people.
            format_type: such as `SavedModel`.
            framework_type: such as `PyTorch`.
            labels: labels of the version.
            evaluation_spec: how it is evaluated, as `ModelRecipe` reads it.
            compression_spec: how it is compressed, as `ModelRecipe` reads it.

        Raises:
            InvalidInputError: a spec is wrong, or `uri` is not a URI; the error lists all problems.
            ConflictError: the version exists.
        """
        check_model_uri(uri, "uri")
        specs = {
            "training_spec": training_spec,
            "evaluation_spec": evaluation_spec,
            "compression_spec": compression_spec,
        }
        _check(**specs)
        fields = NewModelVersion(
            uri=uri,
            version_name=version,
            version_description=description,
            format_type=format_type,
            framework_type=framework_type,
            labels=label_list(labels) if labels else None,
            **specs,
        )
        params, body = {"model_id": model_id}, fields.to_wire()
        response = self._call("CreateModelVersion", "POST", _VERSIONS, params, body=body, idempotent=False)
        return read_model(ModelVersionRecord, response, version_name=version).version_name or ""

    def get_version(self, model_id: str, version: str) -> ModelVersionRecord:
        """Calls GetModelVersion; returns the version with its specs."""
        params = {"model_id": model_id, "version": version}
        response = self._call("GetModelVersion", "GET", _VERSION, params)
        return read_model(ModelVersionRecord, response, version_name=version)

    def list_versions(self, model_id: str, *, page_size: int = 100) -> Iterator[ModelVersionRecord]:
        """ListModelVersions, all pages."""
        names = ModelVersionRecord, ModelVersionList, "ListModelVersions"
        return self._list(*names, _VERSIONS, {"model_id": model_id}, page_size=page_size)

    def update_version(
        self,
        model_id: str,
        version: str,
        *,
        training_spec: Mapping[str, Any] | None = None,
        description: str | None = None,
    ) -> None:
        """Calls UpdateModelVersion; None leaves a field unchanged."""
        _check(training_spec=training_spec)
        changes = ModelVersionFields(training_spec=training_spec, version_description=description)
        params = {"model_id": model_id, "version": version}
        self._call("UpdateModelVersion", "PUT", _VERSION, params, body=changes.to_wire())

    def delete_version(self, model_id: str, version: str) -> None:
        """Calls DeleteModelVersion; the files of the version stay."""
        self._call("DeleteModelVersion", "DELETE", _VERSION, {"model_id": model_id, "version": version})


def _check(**specs: Mapping[str, Any] | None) -> None:
    for name, spec in specs.items():
        if spec is not None:
            check_recipes(spec, name)

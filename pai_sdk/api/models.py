"""Registered models on the wire: a name, versions, and for each version the specs of what can be done with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field
from pydantic.alias_generators import to_pascal

from pai_sdk.api.paging import pages
from pai_sdk.api.responses import read_items, read_model
from pai_sdk.api.transport import ApiResponse, Transport
from pai_sdk.base.hints import name_hint
from pai_sdk.errors import InvalidInputError, NotFoundError, Problem
from pai_sdk.schemas.recipes import check_model_uri, check_recipes
from pai_sdk.schemas.record import KeyValue
from pai_sdk.schemas.wire import NullableList, Received

_MODELS = "/api/v1/models"
_MODEL = _MODELS + "/{model_id}"
_VERSIONS = _MODEL + "/versions"
_VERSION = _VERSIONS + "/{version}"

_PROVIDERS = "Alibaba Cloud offers models of the provider 'pai'; those of the workspace need no provider"


class ModelVersionRecord(Received):
    """A version of a registered model, as the service describes it."""

    version_name: str | None = None
    uri: str | None = None
    version_description: str | None = None
    format_type: str | None = None
    framework_type: str | None = None
    approval_status: str | None = None
    source_type: str | None = None
    source_id: str | None = None
    training_spec: dict[str, Any] | None = None
    evaluation_spec: dict[str, Any] | None = None
    compression_spec: dict[str, Any] | None = None
    inference_spec: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None
    labels: NullableList[KeyValue] = Field(default_factory=list)
    gmt_create_time: str | None = None
    gmt_modified_time: str | None = None


class ModelRecord(Received):
    """A registered model, as the service describes it."""

    model_id: str
    model_name: str | None = None
    provider: str | None = None
    workspace_id: str | None = None
    model_description: str | None = None
    domain: str | None = None
    task: str | None = None
    origin: str | None = None
    model_type: str | None = None
    labels: NullableList[KeyValue] = Field(default_factory=list)
    latest_version: ModelVersionRecord | None = None
    gmt_create_time: str | None = None
    gmt_modified_time: str | None = None


class Models:
    """The actions on registered models, one method each.

    Args:
        transport: to the workspace API, version `workspaces.VERSION`.
        workspace_id: the workspace of the models; the service's default one when None.

    Example:
        >>> model_id = session.models.create("digits", task="classification")  # doctest: +SKIP
        >>> session.models.create_version(model_id, "oss://models/digits/", training_spec=spec)  # doctest: +SKIP
        '0.1.0'
    """

    def __init__(self, transport: Transport, workspace_id: str | None = None) -> None:
        self._transport = transport
        self._workspace_id = workspace_id

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
        """CreateModel, in the workspace.

        Returns:
            The new model's id.

        Raises:
            ConflictError: the workspace has a model of this name.
        """
        body = {
            "ModelName": name,
            "WorkspaceId": self._workspace_id,
            "ModelDescription": description,
            "Task": task,
            "Domain": domain,
            "Labels": _wire_labels(labels),
        }
        action = "CreateModel"
        # Names are unique in a workspace, so a second delivery is refused and makes no second model.
        response = self._transport.call(action, "POST", _MODELS, body=body, idempotent=False)
        return read_model(ModelRecord, response, action).model_id

    def get(self, model_id: str) -> ModelRecord:
        """GetModel, with its newest version."""
        response = self._call("GetModel", "GET", _MODEL, model_id)
        return read_model(ModelRecord, response, "GetModel", model_id=model_id)

    def list(
        self,
        *,
        name: str | None = None,
        exact: bool = False,
        provider: str | None = None,
        task: str | None = None,
        page_size: int = 100,
    ) -> Iterator[ModelRecord]:
        """ListModels, all pages, the newest first; each model with its newest version.

        Args:
            name: only models with this text in their name.
            exact: only the model of exactly that name.
            provider: only models of this provider, of whatever workspace: `pai`, `huggingface`; without it, ours.
            task: only models for this task.
            page_size: items in a page.
        """
        query = {
            "ModelName": f'"{name}"' if name and exact else name,
            "Provider": provider,
            "Task": task,
            "WorkspaceId": self._workspace_id if provider is None else None,
            "SortBy": "GmtCreateTime",
            "Order": "DESC",
        }

        def fetch(number: int, size: int) -> Mapping[str, Any]:
            paged = {**query, "PageNumber": number, "PageSize": size}
            return self._transport.call("ListModels", "GET", _MODELS, query=paged).json

        return read_items(ModelRecord, pages(fetch, "Models", page_size=page_size), "ListModels")

    def find(self, name: str, provider: str | None = None) -> ModelRecord:
        """The model of exactly that name.

        Raises:
            InvalidInputError: there is none; the message suggests the nearest name.
        """
        for found in self.list(name=name, exact=True, provider=provider):
            if found.model_name == name:
                return found
        known = [model.model_name for model in self.list(provider=provider) if model.model_name]
        whose = f" of provider {provider!r}" if provider else " in the workspace"
        hint = name_hint(name, known)
        if not hint:
            hint = "register it: session.models.create(…)" if provider is None else _PROVIDERS
        raise InvalidInputError([Problem("model_name", f"there is no model {name!r}{whose}", hint)])

    def find_version(
        self, name: str, version: str | None = None, provider: str | None = None
    ) -> tuple[ModelRecord, ModelVersionRecord]:
        """The model of exactly that name, and one of its versions.

        Args:
            name: of the model.
            version: the newest one when None.
            provider: whose it is; ours when None.

        Raises:
            InvalidInputError: there is no such model or version.
        """
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
            there = [one.version_name for one in self.list_versions(model.model_id) if one.version_name]
            what = f"the model {name!r} has no version {version!r}"
            raise InvalidInputError([Problem("model_version", what, name_hint(version, there))]) from None

    def update(
        self,
        model_id: str,
        *,
        description: str | None = None,
        task: str | None = None,
        domain: str | None = None,
    ) -> None:
        """UpdateModel; what is None stays as it is."""
        body = {"ModelDescription": description, "Task": task, "Domain": domain}
        self._call("UpdateModel", "PUT", _MODEL, model_id, body=body)

    def delete(self, model_id: str) -> None:
        """DeleteModel, with its versions; their files stay."""
        self._call("DeleteModel", "DELETE", _MODEL, model_id)

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
        """CreateModelVersion.

        Args:
            model_id: the model.
            uri: where its files are: `oss://bucket/folder/`, or another source, such as `modelscope://…`.
            version: its name; the service counts when it is None.
            training_spec: how it is trained further, as `ModelTrainingRecipe` reads it.
            description: free text for people.
            format_type: such as `SavedModel`.
            framework_type: such as `PyTorch`.
            labels: free labels of the version.
            evaluation_spec: how it is evaluated, in the same form.
            compression_spec: how it is made smaller, in the same form.

        Returns:
            The name of the version.

        Raises:
            InvalidInputError: a spec is wrong; all that is wrong is named. Or `uri` is not a URI.
            ConflictError: the version is there.
        """
        check_model_uri(uri, "uri")
        specs = _checked(
            training_spec=training_spec, evaluation_spec=evaluation_spec, compression_spec=compression_spec
        )
        body = {
            "Uri": uri,
            "VersionName": version,
            "VersionDescription": description,
            "FormatType": format_type,
            "FrameworkType": framework_type,
            "Labels": _wire_labels(labels),
            **specs,
        }
        action = "CreateModelVersion"
        response = self._call(action, "POST", _VERSIONS, model_id, body=body, idempotent=False)
        record = read_model(ModelVersionRecord, response, action, version_name=version)
        return record.version_name or ""

    def get_version(self, model_id: str, version: str) -> ModelVersionRecord:
        """GetModelVersion, with its specs."""
        response = self._call("GetModelVersion", "GET", _VERSION, model_id, version)
        return read_model(ModelVersionRecord, response, "GetModelVersion", version_name=version)

    def list_versions(self, model_id: str, *, page_size: int = 100) -> Iterator[ModelVersionRecord]:
        """ListModelVersions, all pages."""

        def fetch(number: int, size: int) -> Mapping[str, Any]:
            paged = {"PageNumber": number, "PageSize": size}
            return self._call("ListModelVersions", "GET", _VERSIONS, model_id, query=paged).json

        return read_items(ModelVersionRecord, pages(fetch, "Versions", page_size=page_size), "ListModelVersions")

    def update_version(
        self,
        model_id: str,
        version: str,
        *,
        training_spec: Mapping[str, Any] | None = None,
        description: str | None = None,
    ) -> None:
        """UpdateModelVersion; what is None stays as it is.

        Raises:
            InvalidInputError: the spec is wrong; all that is wrong is named.
        """
        body = {**_checked(training_spec=training_spec), "VersionDescription": description}
        self._call("UpdateModelVersion", "PUT", _VERSION, model_id, version, body=body)

    def delete_version(self, model_id: str, version: str) -> None:
        """DeleteModelVersion; its files stay."""
        self._call("DeleteModelVersion", "DELETE", _VERSION, model_id, version)

    def _call(
        self,
        action: str,
        method: str,
        path: str,
        model_id: str,
        version: str | None = None,
        **rest: Any,  # of Transport.call
    ) -> ApiResponse:
        params = {"model_id": model_id}
        if version is not None:
            params["version"] = version
        return self._transport.call(action, method, path, params, **rest)


def _checked(**specs: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """The specs that are given, by their names on the wire."""
    given = {name: spec for name, spec in specs.items() if spec is not None}
    for name, spec in given.items():
        check_recipes(spec, name)
    return {to_pascal(name): spec for name, spec in given.items()}


def _wire_labels(labels: Mapping[str, str] | None) -> list[dict[str, str]] | None:
    return [{"Key": key, "Value": value} for key, value in labels.items()] if labels else None

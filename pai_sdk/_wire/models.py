"""Registered models and their versions."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pai_sdk._wire.base import Received, Sent
from pai_sdk._wire.pai.numbers import Integer
from pai_sdk._wire.pai.record import KeyValue
from pai_sdk._wire.pai.spec import Label
from pai_sdk._wire.pai.wire import NullableList


class ModelFields(Sent):
    """The fields of a model that can be changed."""

    accessibility: str | None = None
    domain: str | None = None
    extra_info: dict[str, Any] | None = None
    model_description: str | None = None
    model_doc: str | None = None
    model_type: str | None = None
    order_number: Integer | None = None
    origin: str | None = None
    parameter_size: Integer | None = None
    tag: list[Label] | None = None
    task: str | None = None


class NewModel(ModelFields):
    """The body of CreateModel."""

    model_name: str
    workspace_id: str | None = None
    labels: list[Label] | None = None


class ModelChanges(ModelFields):
    """The body of UpdateModel; a field that is None stays as it is."""

    model_name: str | None = None  # models are not renamed; clients send the name they know


class ModelVersionFields(Sent):
    """The body of UpdateModelVersion; a field that is None stays as it is."""

    approval_status: str | None = None
    compression_spec: dict[str, Any] | None = None
    distillation_spec: dict[str, Any] | None = None
    evaluation_spec: dict[str, Any] | None = None
    extra_info: dict[str, Any] | None = None
    inference_spec: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None
    options: str | None = None
    source_id: str | None = None
    source_type: str | None = None
    training_spec: dict[str, Any] | None = None
    version_description: str | None = None


class NewModelVersion(ModelVersionFields):
    """The body of CreateModelVersion."""

    uri: str
    version_name: str | None = None
    format_type: str | None = None
    framework_type: str | None = None
    labels: list[Label] | None = None


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
    owner_id: str | None = None
    user_id: str | None = None
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
    owner_id: str | None = None
    user_id: str | None = None
    gmt_create_time: str | None = None
    gmt_modified_time: str | None = None


class ModelList(Received):
    """A page of ListModels."""

    models: NullableList[ModelRecord]
    total_count: int | None = None


class ModelVersionList(Received):
    """A page of ListModelVersions."""

    versions: NullableList[ModelVersionRecord]
    total_count: int | None = None

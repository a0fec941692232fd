"""Experiments: groups of jobs under a name."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from pai_sdk._wire.base import Received, Sent
from pai_sdk._wire.pai.record import KeyValue
from pai_sdk._wire.pai.spec import Label
from pai_sdk._wire.pai.wire import NullableList

Accessibility: TypeAlias = Literal["PRIVATE", "PUBLIC"]


class NewExperiment(Sent):
    """The body of CreateExperiment."""

    name: str
    workspace_id: str | None = None
    artifact_uri: str | None = None
    accessibility: Accessibility | None = None
    labels: list[Label] | None = None


class ExperimentChanges(Sent):
    """The body of UpdateExperiment; a field that is None stays as it is."""

    name: str | None = None
    accessibility: Accessibility | None = None


class ExperimentLabel(KeyValue):
    """A label of an experiment."""

    experiment_id: str | None = None
    gmt_create_time: str | None = None
    gmt_modified_time: str | None = None


class ExperimentRecord(Received):
    """An experiment, as the service describes it."""

    experiment_id: str
    name: str | None = None
    workspace_id: str | None = None
    accessibility: str | None = None
    artifact_uri: str | None = None
    tensorboard_log_uri: str | None = None
    owner_id: str | None = None
    user_id: str | None = None
    gmt_create_time: str | None = None
    gmt_modified_time: str | None = None
    labels: NullableList[ExperimentLabel] = Field(default_factory=list)


class ExperimentList(Received):
    """A page of ListExperiment. The request's id is in it twice, in both spellings."""

    experiments: NullableList[ExperimentRecord]
    total_count: int | None = None
    next_page_token: int | None = None
    request_id: str | None = Field(default=None, alias="requestId")

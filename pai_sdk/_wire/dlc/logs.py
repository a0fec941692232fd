"""Logs and events of jobs and pods."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Boolean, Integer, Query, String, Strings

__all__ = ["ContainerInfo", "EventQuery", "JobEvents", "PodEvents", "PodLogQuery", "PodLogs"]


class PodLogQuery(Query):
    """The parameters of GetPodLogs."""

    max_lines: Integer = None
    start_time: String = None
    end_time: String = None
    pod_uid: String = None
    containers: String = None
    download_to_file: Boolean = None


class ContainerInfo(Body):
    """The names of the containers of a pod."""

    main_container: String = None
    sidecar_containers: Strings = Field(default_factory=list)


class PodLogs(Body):
    """The response of GetPodLogs: lines without time, and without their line ends."""

    keeps_empty = frozenset({"Logs", "logs"})

    job_id: String = None
    pod_id: String = None
    pod_uid: String = None
    logs: Strings = Field(default_factory=list)
    container_info: ContainerInfo | None = None
    containers: String = None
    request_id: String = None


class EventQuery(Query):
    """The parameters of GetPodEvents and GetJobEvents; the latter has no pod."""

    max_events_num: Integer = None
    start_time: String = None
    end_time: String = None
    pod_uid: String = None


class PodEvents(Body):
    """The response of GetPodEvents."""

    keeps_empty = frozenset({"Events", "events"})

    job_id: String = None
    pod_id: String = None
    pod_uid: String = None
    events: Strings = Field(default_factory=list)
    request_id: String = None


class JobEvents(Body):
    """The response of GetJobEvents."""

    keeps_empty = frozenset({"Events", "events"})

    job_id: String = None
    events: Strings = Field(default_factory=list)
    request_id: String = None

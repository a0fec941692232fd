"""Signals to the processes of a job."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Integer, Query, String, Strings

__all__ = [
    "CreatedSignal",
    "NewSignal",
    "SignalDetailQuery",
    "SignalList",
    "SignalQuery",
    "SignalRecord",
    "SignalTarget",
]


class SignalTarget(Body):
    """Which pods get a signal: those that are named, or those of roles."""

    scope: String = None
    pod_names: Strings = Field(default_factory=list)
    roles: Strings = Field(default_factory=list)


class NewSignal(Body):
    """The body of CreateSignal."""

    signal: String = None
    target: SignalTarget | None = None


class CreatedSignal(Body):
    """The response of CreateSignal."""

    signal_id: String = None
    job_id: String = None
    request_id: String = None
    signal: String = None
    status: String = None


class SignalDetailQuery(Query):
    """The parameters of GetSignal."""

    token: String = Field(default=None, repr=False)


class SignalRecord(Body):
    """A signal."""

    signal_id: String = None
    job_id: String = None
    signal: String = None
    status: String = None
    gmt_created: String = None
    gmt_modified: String = None
    message: String = None
    pod_names: Strings = Field(default_factory=list)
    reason: String = None
    request_id: String = None
    roles: Strings = Field(default_factory=list)
    scope: String = None


class SignalQuery(Query):
    """The parameters of ListSignals."""

    order: String = None
    page_number: String = None
    page_size: String = None
    sort_by: String = None
    status: String = None
    token: String = Field(default=None, repr=False)


class SignalList(Body):
    """A page of ListSignals."""

    keeps_empty = frozenset({"Signals", "signals"})

    signals: list[SignalRecord] = Field(default_factory=list)
    total_count: Integer = None
    job_id: String = None
    page_number: Integer = None
    page_size: Integer = None
    request_id: String = None

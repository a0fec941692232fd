"""Workspaces, their settings and their members."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.base import Received, Sent
from pai_sdk._wire.pai.record import KeyValue
from pai_sdk._wire.pai.wire import NullableList


class NewWorkspace(Sent):
    """The body of CreateWorkspace. A service of this package stores the name only."""

    workspace_name: str
    display_name: str | None = None
    description: str | None = None
    env_types: list[str] | None = None


class WorkspaceOwner(Received):
    """The owner of a workspace."""

    user_id: str | None = None
    user_kp: str | None = None
    user_name: str | None = None
    display_name: str | None = None


class WorkspaceRecord(Received):
    """A workspace, as the service describes it."""

    workspace_id: str | None = None
    workspace_name: str | None = None
    display_name: str | None = None
    description: str | None = None
    env_types: NullableList[str] = Field(default_factory=list)
    status: str | None = None
    is_default: bool | None = None
    creator: str | None = None
    admin_names: NullableList[str] = Field(default_factory=list)
    owner: WorkspaceOwner | None = None
    gmt_create_time: str | None = None
    gmt_modified_time: str | None = None


class WorkspaceList(Received):
    """A page of ListWorkspaces."""

    workspaces: NullableList[WorkspaceRecord]
    total_count: int | None = None


class WorkspaceConfig(Received):
    """A setting of a workspace."""

    config_key: str | None = None
    config_value: str | None = None
    labels: NullableList[KeyValue] = Field(default_factory=list)


class WorkspaceConfigList(Received):
    """The response of ListConfigs."""

    configs: NullableList[WorkspaceConfig]
    total_count: int | None = None


class NewMember(Sent):
    """A user who becomes a member of a workspace, with PAI's names of their roles."""

    user_id: str
    roles: list[str]


class NewMembers(Sent):
    """The body of CreateMember."""

    members: list[NewMember]


class MemberRecord(Received):
    """A member of a workspace, as the service describes them."""

    member_id: str | None = None
    user_id: str | None = None
    member_name: str | None = None
    display_name: str | None = None
    roles: list[str] = Field(default_factory=list)


class MemberList(Received):
    """A page of ListMembers; without a count, the response of CreateMember."""

    members: NullableList[MemberRecord]
    total_count: int | None = None

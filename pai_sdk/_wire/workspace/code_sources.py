"""Code sources of a workspace: registered repositories."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Integer, Query, String

__all__ = [
    "CodeSourceList",
    "CodeSourceQuery",
    "CodeSourceRecord",
    "CodeSourceReference",
    "CodeSourceUpdate",
    "NewCodeSource",
]


class NewCodeSource(Body):
    """The body of CreateCodeSource. `CloneType` is 0 for a folder below the mount path, 1 for none."""

    display_name: String = None
    workspace_id: String = None
    code_repo: String = None
    code_branch: String = None
    code_commit: String = None
    mount_path: String = None
    accessibility: String = None
    clone_type: Integer = None
    code_repo_access_token: String = Field(default=None, repr=False)
    code_repo_user_name: String = None
    description: String = None


class CodeSourceRecord(Body):
    """A code source."""

    code_source_id: String = None
    display_name: String = None
    workspace_id: String = None
    code_repo: String = None
    code_branch: String = None
    code_commit: String = None
    mount_path: String = None
    accessibility: String = None
    clone_type: Integer = None
    code_repo_access_token: String = Field(default=None, repr=False)
    code_repo_user_name: String = None
    description: String = None
    gmt_create_time: String = None
    gmt_modify_time: String = None
    user_id: String = None
    request_id: String = None


class CodeSourceUpdate(Body):
    """The body of UpdateCodeSource. An empty description removes it."""

    keeps_empty = frozenset({"Description", "description"})

    display_name: String = None
    clone_type: Integer = None
    code_branch: String = None
    code_commit: String = None
    code_repo: String = None
    code_repo_access_token: String = Field(default=None, repr=False)
    code_repo_user_name: String = None
    description: String = None
    mount_path: String = None


class CodeSourceReference(Body):
    """The response of CreateCodeSource, UpdateCodeSource and DeleteCodeSource."""

    code_source_id: String = None
    request_id: String = None


class CodeSourceQuery(Query):
    """The parameters of ListCodeSources."""

    display_name: String = None
    order: String = None
    page_number: Integer = None
    page_size: Integer = None
    sort_by: String = None
    workspace_id: String = None


class CodeSourceList(Body):
    """A page of ListCodeSources."""

    keeps_empty = frozenset({"CodeSources", "code_sources"})

    code_sources: list[CodeSourceRecord] = Field(default_factory=list)
    total_count: Integer = None
    request_id: String = None

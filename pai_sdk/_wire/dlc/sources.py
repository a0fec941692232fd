"""What a job sees and who it is: mounts, code, variables, network, temporary keys."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Boolean, String, Strings

__all__ = [
    "AssumeUserInfo",
    "CodeSource",
    "CredentialConfig",
    "CredentialConfigItem",
    "CredentialRole",
    "CustomEnv",
    "DataSource",
    "RecordedVpc",
    "UserVpc",
]


class DataSource(Body):
    """A mount: of a data set, or of a URI."""

    data_source_id: String = None
    data_source_version: String = None
    uri: String = None
    mount_path: String = None
    mount_access: String = None
    options: String = None
    access_point_id: String = None
    enable_cache: Boolean = None
    role_arn: String = None
    role_chain: String = None


class CodeSource(Body):
    """A clone of a registered repository. A commit wins over a branch."""

    code_source_id: String = None
    branch: String = None
    commit: String = None
    is_shared_mount_path: Boolean = None
    mount_path: String = None


class CustomEnv(Body):
    """A variable of a job."""

    keeps_empty = frozenset({"Value", "value"})

    key: String = None
    value: String = Field(default=None, repr=False)
    visible: String = None


class UserVpc(Body):
    """The network of a job, as CreateJob takes it."""

    vpc_id: String = None
    switch_id: String = None
    security_group_id: String = None
    default_route: String = None
    extended_cidrs: Strings = Field(default_factory=list, alias="ExtendedCIDRs")


class RecordedVpc(Body):
    """The network of a job, as GetJob returns it: one field is spelt in another way."""

    vpc_id: String = None
    switch_id: String = None
    security_group_id: String = None
    default_route: String = None
    extended_cidrs: Strings = Field(default_factory=list)


class AssumeUserInfo(Body):
    """The user whose key assumes a role."""

    type: String = None
    id: String = None
    access_key_id: String = Field(default=None, repr=False)
    security_token: String = Field(default=None, repr=False)


class CredentialRole(Body):
    """A role whose temporary key a job gets."""

    role_arn: String = None
    role_type: String = None
    assume_role_for: String = None
    assume_user_info: AssumeUserInfo | None = None
    policy: String = None


class CredentialConfigItem(Body):
    """One temporary key of a job."""

    key: String = None
    type: String = None
    roles: list[CredentialRole] = Field(default_factory=list)


class CredentialConfig(Body):
    """The temporary keys of a job."""

    enable_credential_inject: Boolean = None
    aliyun_env_role_key: String = None
    credential_config_items: list[CredentialConfigItem] = Field(default_factory=list)

"""Creates users, each with a bucket and a workspace."""

from __future__ import annotations

from pai_sdk._service.identity.principal import Principal, Right
from pai_sdk._service.identity.users import UserInfo
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.wire_errors import WireError


def create_user(
    context: ServiceContext, principal: Principal, name: str, right: Right, workspace_id: str | None
) -> UserInfo:
    """Creates a user without a key, who has a bucket and is a member of a workspace."""
    workspace_id = context.workspace_for(principal, workspace_id)
    bucket = context.bucket_of_user(name)
    if context.bucket_exists(bucket):
        context.users.check_free(name)  # the bucket of a user is no other problem
        message = f"There is a bucket {bucket!r} already, which may be someone else's; choose another name."
        raise WireError(409, "BUCKET_EXISTS", message)
    context.users.add(name, right, workspace_id=workspace_id)
    context.create_user_bucket(name)  # after an interruption, the next start creates it
    return context.users.get(name)

"""Links to the page of a service of this package on the wire: an action that Alibaba Cloud's API does not have."""

from __future__ import annotations

from pai_sdk._client.api.responses import read_model
from pai_sdk._client.api.service_actions import call_service_action
from pai_sdk._client.api.transport import Transport
from pai_sdk._wire.users import NewPageLink, PageLink
from pai_sdk.errors import InvalidResponseError


def new_page_link(transport: Transport, job_id: str | None = None) -> str:
    """Creates a link (CreatePageLink) that signs in one browser within a minute; None opens the list of jobs."""
    response = call_service_action(
        transport,
        "CreatePageLink",
        "POST",
        "/api/v1/pagelinks",
        feature="page",
        hint="a `pai-sdk serve` of this release has one; Alibaba Cloud shows jobs in its console",
        body=NewPageLink(job_id=job_id).to_wire(),
        idempotent=True,
    )
    link = read_model(PageLink, response, "CreatePageLink").url
    if not link.startswith(("http://", "https://")):
        raise InvalidResponseError(
            "CreatePageLink: the response has no link",
            status_code=response.status_code,
            request_id=response.request_id,
            is_from_service=True,
        )
    return link

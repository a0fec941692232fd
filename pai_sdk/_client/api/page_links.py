"""Links to the page of a service of this package on the wire: an action that Alibaba Cloud's API does not have."""

from __future__ import annotations

from pai_sdk._client.api.resource import call_service_action
from pai_sdk._client.api.responses import read_model
from pai_sdk._client.api.transport import Transport
from pai_sdk._wire.users import NewPageLink, PageLink


def new_page_link(transport: Transport, job_id: str | None = None) -> str:
    """Creates a link (CreatePageLink) that signs in one browser within a minute; None opens the list of jobs."""
    hint = "a `pai-sdk serve` of this release has one; Alibaba Cloud shows jobs in its console"
    request = "CreatePageLink", "POST", "/api/v1/pagelinks"
    body = NewPageLink(job_id=job_id).to_wire()
    response = call_service_action(transport, *request, feature="page", hint=hint, body=body, idempotent=True)
    link = read_model(PageLink, response).url
    if not link.startswith(("http://", "https://")):
        raise response.invalid("the response has no link")
    return link

"""Actions that only services of this package have, on one that does not: a clear error, before any upload."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pai_sdk._client.api.page_links import new_page_link
from pai_sdk._client.api.schedules import Schedules
from pai_sdk._client.api.transport import Transport
from pai_sdk._client.api.users import ServiceUsers
from pai_sdk.errors import InvalidInputError, NotFoundError
from tests.support.messages import refused
from tests.unit.client.api.scripted_server import Reply, ScriptedServer


def never(plan: object) -> dict[str, str]:
    raise AssertionError("the files of a plan were uploaded")


@pytest.mark.parametrize(
    "call",
    [
        lambda transport: Schedules(transport, never).create("x", "0 3 * * *", object()),
        lambda transport: list(Schedules(transport, never).list()),
        lambda transport: Schedules(transport, never).pause("schedule1"),
        lambda transport: ServiceUsers(transport).list(),
        new_page_link,
    ],
)
def test_the_error_says_what_the_service_lacks(
    transport: Transport, server: ScriptedServer, call: Callable[[Transport], object]
) -> None:
    server.answer = lambda asked: Reply({"Code": "InvalidAction.NotFound", "Message": "no action"}, status=404)
    with refused(InvalidInputError, "session"):
        call(transport)


def test_what_is_not_there_on_a_service_with_the_action_is_another_error(
    transport: Transport, server: ScriptedServer
) -> None:
    server.script = [Reply({"Code": "SCHEDULE_NOT_FOUND", "Message": "There is no schedule 'x'"}, status=404)]
    with refused(NotFoundError, code="SCHEDULE_NOT_FOUND"):
        Schedules(transport, never).get("x")

"""The actions on images, as they go over the wire."""

from __future__ import annotations

from pai_sdk._client.api.images import Images
from pai_sdk._client.api.transport import Transport
from tests.unit.client.api.scripted_server import Reply, ScriptedServer
from tests.unit.client.api.test_training_jobs import paged


def test_lists_go_over_all_pages_and_past_odd_items(transport: Transport, server: ScriptedServer) -> None:
    odd = ["text", {"Labels": "none"}]
    server.answer = paged("Images", [*odd, *({"ImageUri": f"r/i:{n}", "Labels": None} for n in range(150))])
    found = [*Images(transport).list(name="torch", labels=["a=1", "b=2"])]
    assert [image.image_uri for image in found] == [f"r/i:{n}" for n in range(150)]
    query = server.asked[0].query
    assert (query["Name"], query["Labels"], query["Verbose"]) == ("torch", "a=1,b=2", "true")
    assert "WorkspaceId" not in query  # with one, the service lists that workspace's own images only
    assert len(server.asked) == 2


def test_one_by_its_id(transport: Transport, server: ScriptedServer) -> None:
    server.script = [Reply({"ImageUri": "r/i:1", "Labels": [{"Key": "a", "Value": 1}]})]
    found = Images(transport).get("image-7")
    assert (found.image_id, found.image_uri, found.labels[0].value) == ("image-7", "r/i:1", "1")
    assert server.asked[0].path == "/api/v1/images/image-7"

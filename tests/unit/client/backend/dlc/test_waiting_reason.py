"""Why a DLC job waits, as a service of one's own says it."""

from __future__ import annotations

from pai_sdk._client.backend.connection import Connection
from pai_sdk._client.backend.dlc.backend import DlcBackend
from pai_sdk._client.backend.queueing import ReportsQueue
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.config.settings import Settings
from pai_sdk._wire.pai.record import JobRecord
from tests.unit.client.api.scripted_server import Reply, ScriptedServer


def test_the_place_is_read_from_the_service() -> None:
    server = ScriptedServer()
    server.script = [Reply({"message": "no GPU", "queue_place": 2, "created_at": None, "events": []})]
    settings = Settings(region_id="cn-x", workspace_id="1", endpoint=server.endpoint)
    backend = DlcBackend(Connection(settings, static_credentials("LTAI-example", "a-secret")))
    record = JobRecord.model_validate({"TrainingJobId": "dlc1", "Status": "Submitted"})
    try:
        assert isinstance(backend, ReportsQueue)
        reason = backend.waiting_reason(record)
    finally:
        backend.close()
        server.close()
    assert reason is not None
    assert (reason.reason, reason.position) == ("no GPU", 2)
    assert server.asked[0].path == "/api/v1/runs/dlc1/job"

"""Opens the connection of a tunnel, and opens it again after it was lost."""

from __future__ import annotations

import logging
import threading

import requests
from urllib3.exceptions import HTTPError
from websockets.exceptions import InvalidHandshake

from pai_sdk._client.api.responses import api_error, read_response
from pai_sdk._client.api.transport import Transport
from pai_sdk._client.tunnel.polling import PolledTransport
from pai_sdk._client.tunnel.websocket import UpgradeRefusedError, WebSocketTransport, open_websocket
from pai_sdk._core.endpoint import host_of
from pai_sdk._core.missing_response import diagnose
from pai_sdk.errors import (
    ConnectionFailedError,
    InvalidInputError,
    JobError,
    NotFoundError,
    PaiError,
    Problem,
    TunnelClosedError,
)

_log = logging.getLogger(__name__)

_ACTION = "ConnectTrainingJobInstance"
_PATH = "/api/v1/trainingjobs/{training_job_id}/instances/{instance}/tunnel"
# Codes with which the service closes a WebSocket. All others are like a lost connection.
_REFUSED, _MISSING, _JOB_FINISHED = 4403, 4404, 4410
_NO_SUCH_ACTION = "InvalidAction.NotFound"
_MALFORMED = (1003, 1009)
# Responses of the service have this header, those of a proxy before it have not.
_REQUEST_ID = "x-acs-request-id"
_UPGRADE_REQUIRED = 426  # a proxy has dropped the header
_BUSY_GATEWAY = range(500, 600)


class Dialler:
    """Opens connections to one instance, each when the one before was lost. Thread-safe."""

    def __init__(self, transport: Transport, job_id: str, instance: str) -> None:
        self._transport = transport
        self._job_id = job_id
        self._instance = instance
        self._lock = threading.Lock()
        self._current: WebSocketTransport | PolledTransport | None = None
        self._polls = False  # a proxy lets no WebSocket pass

    def __repr__(self) -> str:
        return f"<Dialler {self._instance} of {self._transport.endpoint}>"

    def dial(self) -> WebSocketTransport | PolledTransport:
        """Opens a connection, in one attempt.

        Raises:
            ConnectionFailedError: the service cannot be reached; a later attempt may succeed if it is retryable.
            ApiError: the service refuses.
            JobError: the job has finished.
            InvalidInputError: the service has no tunnels.
        """
        with self._lock:
            if self._current is not None and (error := self._final_error(self._current)) is not None:
                raise error
            try:
                self._current = self._poll() if self._polls else self._open()
            except NotFoundError as error:
                if error.code != _NO_SUCH_ACTION:
                    raise
                hint = "update the service, or check the endpoint"
                message = f"the service {self._transport.endpoint} offers no tunnels into jobs"
                raise InvalidInputError([Problem("JOB", message, hint)]) from error
            except ConnectionFailedError as error:
                if error.refused:
                    self._transport.revive()
                raise
            return self._current

    def _poll(self) -> PolledTransport:
        transport = PolledTransport(self._transport, self._job_id, self._instance)
        transport.open()
        return transport

    def _open(self) -> WebSocketTransport | PolledTransport:
        ids = {"training_job_id": self._job_id, "instance": self._instance}
        request = self._transport.upgrade_request(_ACTION, _PATH, ids)
        endpoint = self._transport.endpoint
        try:
            return open_websocket(request, self._transport.timeout_s)
        except UpgradeRefusedError as error:
            response, host = error.response, host_of(endpoint)
            if not _is_of_proxy(response):
                # Raises the error that the service has sent. Any other response than 101 is none of a tunnel.
                received = read_response(response, response.content, action=_ACTION, host=host)
                raise received.invalid(f"HTTP {response.status_code} in place of a WebSocket") from None
            reason = f"HTTP {response.status_code}"
        except InvalidHandshake as error:
            reason = str(error)
        except (OSError, HTTPError, requests.RequestException) as error:
            diagnosis = diagnose(error, endpoint)
            raise ConnectionFailedError(
                f"{_ACTION}: {diagnosis.sentence}",
                endpoint=endpoint,
                retryable=diagnosis.transient,
                refused=diagnosis.refused,
            ) from error
        _log.info("a proxy lets no WebSocket pass (%s); requests are used", reason)
        polled = self._poll()
        self._polls = True
        return polled

    def _final_error(self, connection: WebSocketTransport | PolledTransport) -> PaiError | None:
        code, reason = connection.close_code, connection.close_reason
        if code == _JOB_FINISHED:
            message = f"the processes of job {self._job_id} have ended, so its tunnel was closed"
            return JobError(message, job_id=self._job_id)
        if code == _REFUSED:
            message = f"the service closed the tunnel: {reason or 'the key may no longer open it'}"
            return api_error(message, code="Forbidden", status_code=403, request_id=None)
        if code == _MISSING:
            message = f"the service closed the tunnel: {reason or 'there is no such job or instance'}"
            return api_error(message, code="TrainingJobNotFound", status_code=404, request_id=None)
        if code in _MALFORMED:
            return TunnelClosedError("ProtocolError", f"the service closed the tunnel: {reason or code}")
        return None


def _is_of_proxy(response: requests.Response) -> bool:
    """Returns whether a proxy has refused an upgrade, or has dropped it."""
    is_from_service = _REQUEST_ID in response.headers and response.status_code != _UPGRADE_REQUIRED
    return not is_from_service and response.status_code not in _BUSY_GATEWAY

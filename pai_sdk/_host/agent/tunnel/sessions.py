"""The sessions of a server: connects each arriving connection with its session. Standard library only."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from pai_sdk._host.agent.tunnel import frames
from pai_sdk._host.agent.tunnel.frames import ProtocolError
from pai_sdk._host.agent.tunnel.link import HANDSHAKE_S, ResumableLink, Transport, closed_error
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError

_SESSION = re.compile(r"[0-9a-f]{32}")
_MAX_SESSIONS = 128
_MAX_ENDED = 256  # of which the reason is remembered
_MAX_INSTANCE_LENGTH = 300


class Sessions:
    """All sessions, by their identity.

    Args:
        on_session: called with each new link, and the instance that its executor has selected or an empty string;
            starts it.
        rejoin_s: seconds after which a session without a connection ends.
    """

    def __init__(self, on_session: Callable[[ResumableLink, str], None], *, rejoin_s: float = 120.0) -> None:
        self._on_session = on_session
        self._rejoin_s = rejoin_s
        self._lock = threading.Lock()
        self._links: dict[str, ResumableLink] = {}
        self._reasons: OrderedDict[str, TunnelClosedError] = OrderedDict()

    def __len__(self) -> int:
        with self._lock:
            return len(self._links)

    def serve(self, transport: Transport) -> None:
        """Serves a connection to its end, and closes it."""
        try:
            self._serve(transport)
        except TunnelRefusedError as error:
            content = {"code": error.code, "message": error.message}
            with suppress(OSError):
                transport.send(frames.with_json(frames.REFUSED, content))
        except OSError:
            # Lost, or closed for what its peer sent.
            pass
        finally:
            transport.close()

    def expire(self) -> None:
        """Ends the sessions that nobody has joined again in time."""
        with self._lock:
            links = [link for link in self._links.values() if link.is_expired]
        for link in links:
            link.end(TunnelClosedError("ConnectionLost", "the connection was lost for too long"))

    def close(self, reason: TunnelClosedError, *, flush_s: float = 1.0) -> None:
        """Ends all sessions."""
        with self._lock:
            links = list(self._links.values())
        arguments = {"reason": reason, "flush_s": flush_s}
        threads = [threading.Thread(target=link.close, kwargs=arguments) for link in links]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def remove(self, link: ResumableLink, error: Exception) -> None:
        """Forgets an ended session; who wants to join it again gets the reason for a while."""
        with self._lock:
            if self._links.pop(link.session, None) is not None:
                self._reasons[link.session] = closed_error(error)
                while len(self._reasons) > _MAX_ENDED:
                    self._reasons.popitem(last=False)

    def _serve(self, transport: Transport) -> None:
        instance = ""
        frame = transport.receive(HANDSHAKE_S)
        if frames.kind_of(frame) == frames.SELECT:
            instance = str(frames.json_of(frame[1:]).get("instance", ""))[:_MAX_INSTANCE_LENGTH]
            frame = transport.receive(HANDSHAKE_S)
        if frames.kind_of(frame) != frames.HELLO:
            raise ProtocolError("not a greeting")
        content = frames.json_of(frame[1:])
        session, epoch, received = (content.get(name) for name in ("session", "epoch", "received"))
        if not (
            isinstance(session, str)
            and _SESSION.fullmatch(session)
            and type(epoch) is int
            and type(received) is int
            and received >= 0
        ):
            raise ProtocolError("not a greeting")
        link = self._find(session, instance, is_new=content.get("new") is True and received == 0)
        link.join(transport, epoch, received)
        link.serve(transport)

    def _find(self, session: str, instance: str, *, is_new: bool) -> ResumableLink:
        """Returns the link of a session, which is created if it is new."""
        with self._lock:
            link = self._links.get(session)
            if link is not None:
                return link
            reason = self._reasons.get(session)
            if reason is not None:
                raise TunnelRefusedError(reason.code, reason.message)
            if not is_new:
                raise TunnelRefusedError(
                    "SessionUnknown", "the session has ended, or its instance was started again"
                )
            if len(self._links) >= _MAX_SESSIONS:
                raise TunnelRefusedError("TooManySessions", f"{_MAX_SESSIONS} sessions of this instance are open")
            link = self._links[session] = ResumableLink(session, rejoin_s=self._rejoin_s)
            try:
                self._on_session(link, instance)
            except (RuntimeError, TunnelRefusedError) as error:
                del self._links[session]
                failure = error
            else:
                return link
        # Without the lock, which `remove` acquires.
        link.end(failure)
        raise TunnelRefusedError("TooManyThreads", f"the instance can start no thread for a session: {failure}")

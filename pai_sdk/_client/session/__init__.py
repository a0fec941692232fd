"""Sessions: settings, keys and the backends made of them."""

from __future__ import annotations

from pai_sdk._client.session.default import get_default_session, session_or_default, setup_default_session
from pai_sdk._client.session.session import Session

__all__ = ["Session", "get_default_session", "session_or_default", "setup_default_session"]

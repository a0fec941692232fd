"""Sends messages by Apprise, in a child process.

Apprise takes seconds and megabytes to import, has no deadline for a message, and opens its connections itself: in
a process of its own, all three can be limited. See `apprise_child`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pai_sdk._core.extras import missing_extra
from pai_sdk._data.notify.guard import UNGUARDED, AddressGuard
from pai_sdk._data.notify.messages import Message, as_text, title_of
from pai_sdk._data.notify.refusals import TRANSIENT_STATUSES, NotDeliveredError

_DEADLINE_S = 60.0  # with the import, which takes seconds on a busy machine; sending alone has 10 s
_MAX_BYTES = 16_000
_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from {} import main; sys.exit(main())"
_MODULE = "pai_sdk._data.notify.apprise_child"
_ROOT = Path(__file__).resolve().parents[3]
# They show a message on the machine itself, or run something there.
_LOCAL_SCHEMES = frozenset(("dbus", "kde", "qt", "glib", "gnome", "windows", "macosx", "syslog"))


def send_by_apprise(url: str, message: Message, guard: AddressGuard = UNGUARDED) -> None:
    """Sends a message by one attempt; raises NotDeliveredError."""
    scheme = urlsplit(url).scheme.lower()
    if not guard.allows_all and scheme in _LOCAL_SCHEMES:
        raise NotDeliveredError(f"a service sends nothing to {scheme}://", code="InvalidUrl", is_transient=False)
    require_apprise()
    task = {
        "url": url,
        "title": title_of(message),
        "body": as_text(message, _MAX_BYTES, with_title=False),
        "guard": guard.to_json(),
    }
    outcome = _run(task)
    if not outcome["delivered"]:
        code = outcome["code"]
        raise NotDeliveredError(outcome["reason"], code=code, is_transient=_is_transient(code))


def require_apprise() -> None:
    """Raises NotDeliveredError unless Apprise is installed."""
    if find_spec("apprise") is None:
        error = missing_extra("this target needs Apprise", "notify")
        raise NotDeliveredError(str(error), code="MissingExtra", is_transient=False)


def _is_transient(code: str) -> bool:
    if code.startswith("HTTP"):
        return code in {f"HTTP{status}" for status in TRANSIENT_STATUSES}
    return code not in ("InvalidUrl", "AddressNotAllowed")


def _run(task: dict[str, Any]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM.format(_MODULE), str(_ROOT)],
            input=json.dumps(task).encode(),  # arguments and variables of a process can be read by others
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            timeout=_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"delivered": False, "code": "Timeout", "reason": "no response in time"}
    try:
        outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return outcome
    except (ValueError, IndexError):
        reason = f"Apprise ended with exit code {done.returncode}"
        return {"delivered": False, "code": "NoResponse", "reason": reason}

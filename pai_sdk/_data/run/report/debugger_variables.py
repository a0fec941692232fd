"""The variables that switch the debugger of a job on. Shipped with jobs: standard library only, as of Python 3.8.

PYTHONBREAKPOINT=pai_sdk.reports.wait_for_debugger   what `breakpoint()` calls
PAI_DEBUGGER=terminal | debugpy                      how the client debugs
PAI_DEBUGGER_WAIT_S=3600                             how long a process waits for it
"""

from __future__ import annotations

from collections.abc import Mapping

FORM_VARIABLE = "PAI_DEBUGGER"
WAIT_VARIABLE = "PAI_DEBUGGER_WAIT_S"
HOOK_VARIABLE = "PYTHONBREAKPOINT"
_HOOK = "pai_sdk.reports.wait_for_debugger"


def debugger_variables(form: str | None) -> dict[str, str]:
    """Returns the variables of a job with a debugger; none without one."""
    return {} if form is None else {HOOK_VARIABLE: _HOOK, FORM_VARIABLE: form}


def has_debugger(variables: Mapping[str, object] | None) -> bool:
    """Returns whether a job with these variables needs this package for its debugger."""
    return (variables or {}).get(HOOK_VARIABLE) == _HOOK

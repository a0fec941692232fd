"""The names of alipai for members of our classes, by the class; `pai_sdk._core.names.aliases` reads both tables."""

from __future__ import annotations

from collections.abc import Mapping

from pai_sdk.alipai.job_names import JobAliases
from pai_sdk.alipai.session_names import SESSION_REPLACEMENTS, SessionAliases
from pai_sdk.alipai.submitter_names import ModelAliases, SubmitterAliases

__all__ = ["ALIASES", "REPLACEMENTS"]

ALIASES: Mapping[str, type] = {
    "JobSubmitter": SubmitterAliases,
    "RegisteredModel": ModelAliases,
    "Session": SessionAliases,
    "TrainingJob": JobAliases,
}
"""The classes whose members stand in for missing ones."""

REPLACEMENTS: Mapping[str, Mapping[str, str]] = {"Session": SESSION_REPLACEMENTS}
"""What replaces an attribute, for its error."""

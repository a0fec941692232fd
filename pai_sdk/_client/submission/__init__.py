"""Exactly one job of a plan: its key, the search for an earlier job, the fallbacks, the unconfirmed create."""

from __future__ import annotations

from pai_sdk._client.submission.creation import SubmissionPolicy
from pai_sdk._client.submission.ledger import with_key
from pai_sdk._client.submission.submit import submit

__all__ = ["SubmissionPolicy", "submit", "with_key"]

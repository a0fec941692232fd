"""The idempotency key of a submission, as a label that is equal for all its requests."""

from __future__ import annotations

import hashlib
import re

from pai_sdk._wire.pai.request import IDEMPOTENCY_LABEL, SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.errors import InvalidInputError, Problem

_KEY = re.compile(r"[\w][\w.:/@+-]{0,127}")


def with_key(request: TrainingJobRequest, key: str) -> TrainingJobRequest:
    """Returns the request with the label of an idempotency key: all requests with that key are one submission."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        hint = "letters, digits and '_.:/@+-', 128 at most, such as 'nightly-2026-11-22'"
        raise InvalidInputError([Problem("", "is not usable", hint)])
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    return request.with_label(SUBMISSION_LABEL, digest).with_label(IDEMPOTENCY_LABEL, key)


def has_key(request: TrainingJobRequest) -> bool:
    """Returns True if the request has an idempotency key: other plans can be the same submission."""
    return request.label(IDEMPOTENCY_LABEL) is not None

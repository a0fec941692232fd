"""oss2 where warnings are errors."""

from __future__ import annotations

import warnings

import pytest

from pai_sdk.storage.oss2_import import ignore_utcnow

MESSAGE = "datetime.datetime.utcnow() is deprecated"


def test_what_oss2_uses_when_it_signs_is_no_error() -> None:
    """Whatever was filtered meanwhile, and without a filter more each time."""
    with warnings.catch_warnings():
        for _ in range(2):
            warnings.simplefilter("error")
            ignore_utcnow()
            ignore_utcnow()
            warnings.warn_explicit(MESSAGE, DeprecationWarning, "auth.py", 540, module="oss2.auth")
            assert len(warnings.filters) == len(set(warnings.filters))
        with pytest.raises(DeprecationWarning):
            warnings.warn_explicit(MESSAGE, DeprecationWarning, "mine.py", 1, module="mine")

"""Exceptions of alipai that nothing here raises: programs that catch them can be imported."""

from __future__ import annotations

from pai_sdk.errors import PaiError


class PredictionException(PaiError):
    """A service for predictions failed; pai_sdk has none."""

    code: str | None = None


class DuplicatedMountException(PaiError):
    """A folder was mounted twice; inputs of pai_sdk are channels with a folder each."""


class MountPathIsOccupiedException(PaiError):
    """A folder to mount to was in use already; inputs of pai_sdk are channels with a folder each."""

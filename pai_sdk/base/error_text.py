"""The text of an error that code of a user has raised."""

from __future__ import annotations

__all__ = ["error_text"]


def error_text(error: BaseException) -> str:
    """The text of an error, for a record: also of one whose text cannot be made or written.

    Example:
        >>> error_text(ValueError("no rows"))
        'no rows'
    """
    try:
        text = str(error)
    except Exception as raised:  # of its own `__str__`
        text = f"its text raises {type(raised).__name__}"
    return text.encode(errors="replace").decode()  # lone surrogates can be neither printed nor written to a file

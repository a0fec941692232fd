"""The `pai-sdk` command."""

from __future__ import annotations

_NEW_OBJECTS = 50_000


def main() -> None:
    """Runs the command; the entry point of the package."""
    import gc
    import sys

    # The imports of a command would cause collections of which none frees anything, a twentieth of its start.
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    try:
        from pai_sdk.cli.root import run

        run()
    except KeyboardInterrupt:  # within the imports
        sys.exit(130)
    finally:
        # As it exits, the interpreter would search all modules for garbage, a seventh of a short command's time.
        gc.freeze()

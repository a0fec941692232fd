"""The KeyboardInterrupt that an interrupted wait raises; its text says what happens to the job."""

from __future__ import annotations

from collections.abc import Sequence


def detached(job_id: str, commands: Sequence[str]) -> KeyboardInterrupt:
    """The interrupt of a wait whose job goes on; its text has the commands to continue.

    Example:
        >>> str(detached("train1", ["pai-sdk logs -f train1"]))
        'train1 goes on; come back with: pai-sdk logs -f train1'
    """
    shown = [f"Interrupted. {job_id} goes on; come back, or stop it, with", *(f"  {line}" for line in commands)]
    return _interrupt(f"{job_id} goes on; come back with: {commands[0]}", shown)


def stopped(job_id: str) -> KeyboardInterrupt:
    """The same for a job that was stopped by the interrupt.

    Example:
        >>> str(stopped("local-08655612a521"))
        'local-08655612a521 was stopped'
    """
    return _interrupt(f"{job_id} was stopped", [f"Interrupted. {job_id} was stopped."])


def stopping(job_id: str, commands: Sequence[str]) -> KeyboardInterrupt:
    """The same for a job that was asked to stop and has not ended yet.

    Example:
        >>> str(stopping("train1", ["pai-sdk logs -f train1", "pai-sdk status train1"]))
        'train1 is being stopped; see its end with: pai-sdk logs -f train1'
    """
    text = f"{job_id} is being stopped; see its end with"
    shown = [f"Interrupted. {text}", *(f"  {line}" for line in commands[:2])]
    return _interrupt(f"{text}: {commands[0]}", shown)


def _interrupt(text: str, shown: Sequence[str]) -> KeyboardInterrupt:
    # Not a subclass: only for KeyboardInterrupt itself Python exits with the status that shells know as Ctrl-C.
    interrupt = KeyboardInterrupt(text)
    # IPython shows this in place of the traceback of the wait.
    interrupt._render_traceback_ = lambda: ["\n".join(shown)]  # type: ignore[attr-defined]
    return interrupt

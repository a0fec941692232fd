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


def all_detached(job_ids: Sequence[str], commands: Sequence[str]) -> KeyboardInterrupt:
    """The interrupt of a wait for many jobs, which go on.

    Example:
        >>> str(all_detached(["train1", "train2"], ["pai-sdk ps"]))
        '2 jobs go on; see them with: pai-sdk ps'
    """
    what = f"{len(job_ids)} jobs go on" if len(job_ids) != 1 else f"{job_ids[0]} goes on"
    shown = [f"Interrupted. {what}; see them with", *(f"  {line}" for line in commands)]
    return _interrupt(f"{what}; see them with: {commands[0]}", shown)


def all_stopped(stopped_ids: Sequence[str], stopping_ids: Sequence[str]) -> KeyboardInterrupt:
    """The same for jobs that were asked to stop: those that have ended, and those that have not ended yet.

    Example:
        >>> str(all_stopped(["train1"], ["train2", "train3"]))
        '1 job has ended; 2 are being stopped'
    """
    ended = f"{len(stopped_ids)} {'job has' if len(stopped_ids) == 1 else 'jobs have'} ended"
    text = f"{ended}; {len(stopping_ids)} are being stopped" if stopping_ids else ended
    return _interrupt(text, [f"Interrupted. {text}."])


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

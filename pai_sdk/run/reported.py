"""The metrics that a training has reported, read from the event files of its run, in any store."""

from __future__ import annotations

import io
import math

from pai_sdk.errors import ObjectNotFoundError
from pai_sdk.run.events import event_file_source, read_scalars
from pai_sdk.schemas.record import MetricPoint
from pai_sdk.schemas.wire import wire_time
from pai_sdk.storage.store import Store

__all__ = ["reported_metrics"]


def reported_metrics(store: Store, *, name: str | None = None, since: float = 0.0) -> list[MetricPoint]:
    """The values in the event files of a folder `tensorboard`, oldest first; without NaN and infinities.

    Args:
        store: the folder. Files that are still being written are read as far as they have come.
        name: of the only metric that is wanted.
        since: in seconds since 1970; files of processes that began earlier are of other jobs.

    Raises:
        StorageError: a file cannot be read.

    Example:
        >>> from pai_sdk.storage.store import open_store
        >>> reported_metrics(open_store("memory://nothing-here"))
        []
    """
    found: list[tuple[float, MetricPoint]] = []
    for file in store.list():
        source = event_file_source(file.path)
        if source is None or source[1] < since:
            continue
        try:
            content = io.BytesIO(b"".join(store.read(file.path)))
        except ObjectNotFoundError:  # removed since it was listed
            continue
        for event in read_scalars(content):
            if math.isfinite(event.value) and name in (None, event.tag):
                point = MetricPoint(
                    name=event.tag,
                    value=event.value,
                    timestamp=wire_time(event.wall_time),
                    step=event.step,
                    instance=source[0],
                )
                found.append((event.wall_time, point))
    return [point for _, point in sorted(found, key=lambda one: one[0])]

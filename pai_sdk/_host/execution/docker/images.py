"""Makes the image of a job available on this machine, or explains why it cannot."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pai_sdk._data.storage.progress import ByteBar
from pai_sdk.errors import ImageError

if TYPE_CHECKING:
    from pai_sdk._host.execution.docker.engine import Engine

_POLL_INTERVAL_S = 0.1

_LAYER_LOADING = "Downloading"
_LAYER_COMPLETE = ("Download complete", "Pull complete", "Already exists")


class PullAbandoned(Exception):
    """Raised when a pull was cancelled."""


def ensure_image(
    engine: Engine, image: str, *, progress: bool, should_cancel: Callable[[], bool] = lambda: False
) -> str:
    """Returns the id of an image, after a pull if it is not on this machine."""
    from docker.errors import APIError, ImageNotFound
    from requests.exceptions import RequestException

    try:
        return str(engine.client.images.get(image).id)
    except ImageNotFound:
        pass
    except APIError as error:
        # The name is invalid.
        raise ImageError(_explained(image, str(error.explanation or error))) from error
    except RequestException as error:
        raise engine.lost_error(error, while_doing=f"it was asked for the image {image!r}") from error
    try:
        # With the keys for private registries of Docker's own configuration (`docker login`).
        _pull(engine, image, progress=progress, should_cancel=should_cancel)
        return str(engine.client.images.get(image).id)
    except APIError as error:
        raise ImageError(_explained(image, str(error.explanation or error))) from error
    except RequestException as error:
        raise engine.lost_error(error, while_doing=f"it pulled the image {image!r}") from error


def _pull(engine: Engine, image: str, *, progress: bool, should_cancel: Callable[[], bool]) -> None:
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(image)
    with ByteBar(f"pulling {image}", is_visible=progress) as bar:
        layers = _Layers(bar)
        for event in _checked(_pull_events(engine, repository, tag or "latest", should_cancel), image):
            layers.update(event)


def _pull_events(
    engine: Engine, repository: str, tag: str, should_cancel: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Yields the events of a pull."""
    # There are no events while a registry does not respond, so another thread reads them. After a cancellation
    # that thread exits with the next event of the engine, or at the client's read timeout.
    events: queue.SimpleQueue[dict[str, Any] | Exception | None] = queue.SimpleQueue()
    is_cancelled = threading.Event()

    def read() -> None:
        try:
            for event in engine.client.api.pull(repository, tag=tag, stream=True, decode=True):
                events.put(event)
                # Reading the stream cannot be interrupted, so the flag is checked between events.
                if is_cancelled.is_set():
                    return
            events.put(None)
        except Exception as error:
            events.put(error)

    threading.Thread(target=read, name="pull", daemon=True).start()
    try:
        while not should_cancel():
            try:
                event = events.get(timeout=_POLL_INTERVAL_S)
            except queue.Empty:
                continue
            if event is None:
                return
            if isinstance(event, Exception):
                # Raised in this thread: the reader thread has no caller.
                raise event
            yield event
        raise PullAbandoned
    finally:
        # Also if the consumer stops early: the reader would otherwise read the stream to its end.
        is_cancelled.set()


def _checked(events: Iterator[dict[str, Any]], image: str) -> Iterator[dict[str, Any]]:
    """Yields the events of a pull; raises if one reports a failure."""
    for event in events:
        if "error" in event:
            raise ImageError(_explained(image, str(event["error"])))
        yield event


class _Layers:
    """Sums up the progress of each layer, as the engine reports it."""

    def __init__(self, bar: ByteBar) -> None:
        self._bar = bar
        self._sizes: dict[str, int] = {}
        self._done: dict[str, int] = {}

    def update(self, event: dict[str, Any]) -> None:
        """Processes one line of the engine's report."""
        layer, status = event.get("id", ""), event.get("status", "")
        detail = event.get("progressDetail") or {}
        if status == _LAYER_LOADING and detail.get("total"):
            if layer not in self._sizes:
                # Every event repeats the total; it counts once.
                self._sizes[layer] = detail["total"]
                self._bar.expect(detail["total"])
            self._advance(layer, detail.get("current", 0))
        elif status in _LAYER_COMPLETE and layer in self._sizes:
            self._advance(layer, self._sizes[layer])

    def _advance(self, layer: str, to: int) -> None:
        before = self._done.get(layer, 0)
        if to > before:
            self._bar.advance(to - before)
            self._done[layer] = to


def _explained(image: str, reason: str) -> str:
    lowered = reason.lower()
    if any(word in lowered for word in ("unauthorized", "denied", "credentials", "authentication required")):
        hint = "check its name; for a private one, `docker login` to its registry first"
    elif "invalid reference" in lowered:
        hint = "an image is called registry/name:tag, in lower case"
    elif "not found" in lowered or "manifest unknown" in lowered or "no such image" in lowered:
        hint = "check its name and tag"
    else:
        hint = "its registry was not reached; `docker pull` it when it can be, or name one of `docker images`"
    return f"the image {image!r} is not on this machine and cannot be pulled: {reason.strip()}; {hint}"

"""Cards of jobs that nobody waits for: they go on updating, until the job ends or another card takes over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pai_sdk._client.display.base import Silent
from pai_sdk._client.display.buttons import JobButtons
from pai_sdk._client.display.jupyter import JupyterDisplay
from pai_sdk._client.job.notebook_card import LiveCard
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import JobRecord, LogLine, MetricPoint
from pai_sdk.errors import InvalidRequestError
from tests.support.fake_backend import FAST, FakeBackend
from tests.support.waiting import PATIENCE_S, until


class Page:
    """A notebook's page: its cards as they are now, and the widgets below them."""

    def __init__(self) -> None:
        self.cards: list[str] = []
        self.widgets: list[Any] = []

    def display(self, shown: Any, display_id: bool) -> Place:
        kind, content = (self.cards, shown.data) if hasattr(shown, "data") else (self.widgets, shown)
        kind.append(content)
        return Place(kind, len(kind) - 1)


@dataclass
class Place:
    kind: list[Any]
    number: int

    def update(self, shown: Any) -> None:
        self.kind[self.number] = getattr(shown, "data", shown)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    page = Page()
    monkeypatch.setattr("IPython.display.display", page.display)
    monkeypatch.setattr("pai_sdk._client.display.choice.in_notebook", lambda: True)
    monkeypatch.setattr("pai_sdk._client.job.notebook_card.notebook_cell", lambda: 3)
    monkeypatch.setattr("pai_sdk._client.job.notebook_card.FollowPolicy", lambda: FAST)
    return page


class Recorder(Silent):
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.has_ended = threading.Event()

    def line(self, line: LogLine) -> None:
        self.seen.append(line.text)

    def notice(self, text: str) -> None:
        self.seen.append(text)

    def ended(self, record: JobRecord) -> None:
        self.seen.append(record.status)
        self.has_ended.set()


def test_a_card_goes_on_to_the_end_of_its_job() -> None:
    backend, shown = FakeBackend(), Recorder()
    backend.lines = {"train1-master-0": ["one"]}
    job = TrainingJob("train1", backend)
    card = LiveCard(job, shown, FAST)
    until(lambda: shown.seen == ["one"])
    backend.lines["train1-master-0"].append("two")
    backend.status = "Succeed"
    assert shown.has_ended.wait(PATIENCE_S)
    assert shown.seen == ["one", "two", "Succeed"]
    assert card.join(PATIENCE_S)
    assert job.record.status == "Succeed"


def test_a_card_that_was_left_is_not_touched_again() -> None:
    backend, shown = FakeBackend(), Recorder()
    backend.lines = {"train1-master-0": ["one"]}
    card = LiveCard(TrainingJob("train1", backend), shown, FAST)
    until(lambda: shown.seen == ["one"])
    card.close()
    backend.lines["train1-master-0"].append("two")
    backend.status = "Succeed"
    assert card.join(PATIENCE_S)
    assert shown.seen == ["one"]


def test_a_job_that_cannot_be_followed_is_a_notice() -> None:
    backend, shown = FakeBackend(), Recorder()

    def refuse(*_: object, **__: object) -> JobRecord:
        raise InvalidRequestError("no such thing", code="Invalid", status_code=400, request_id="r")

    backend.get = refuse  # type: ignore[method-assign]
    assert LiveCard(TrainingJob("train1", backend), shown, FAST).join(PATIENCE_S)
    assert shown.seen == ["no longer updated: no such thing"] or "no such thing" in shown.seen[0]


def test_a_job_as_the_value_of_a_cell_is_a_card_that_updates(page: Page) -> None:
    backend = FakeBackend()
    backend.lines = {"train1-master-0": ["hello"]}
    job = TrainingJob("train1", backend)
    job._ipython_display_()
    job._ipython_display_()
    until(lambda: "hello" in page.cards[0])
    assert "Running" in page.cards[0]
    backend.status = "Succeed"
    until(lambda: "Succeed" in page.cards[0])
    assert len(page.cards) == 1, "one card in a cell"


def test_a_wait_in_the_same_cell_takes_the_card_over(page: Page) -> None:
    backend = FakeBackend()
    backend.lines = {"train1-master-0": ["only once"]}
    job = TrainingJob("train1", backend)
    job._ipython_display_()
    until(lambda: "only once" in page.cards[0])
    backend.status = "Succeed"
    job.wait(policy=FAST)
    (card,) = page.cards
    assert "Succeed" in card
    assert card.count("only once") == 1
    assert len(page.widgets) <= 1, "the buttons are taken over too"


def test_a_wait_without_a_display_leaves_the_card_alive(page: Page) -> None:
    backend = FakeBackend()
    backend.lines = {"train1-master-0": []}
    job = TrainingJob("train1", backend)
    job._ipython_display_()
    backend.status = "Succeed"
    job.wait(policy=FAST, show_logs=False)
    until(lambda: "Succeed" in page.cards[0])


def test_outside_of_a_notebook_nothing_is_live() -> None:
    job = TrainingJob("train1", FakeBackend())
    job.keep_card_live()
    assert job._card.live is None
    with pytest.raises(NotImplementedError):
        job._ipython_display_()  # IPython takes the text


class Reporting(FakeBackend):
    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        self.calls.append("metrics")
        return iter([MetricPoint(name="loss", value=value, step=at) for at, value in enumerate([3.0, 2.0, 1.0])])


LATEST = {"LatestMetrics": [{"Name": "loss", "Value": 1.0, "Step": 2}]}


def test_the_card_of_a_job_that_runs_already_has_the_whole_curve(page: Page) -> None:
    backend = Reporting()
    backend.extra = LATEST
    TrainingJob("train1", backend)._ipython_display_()
    assert "<svg" in page.cards[0]
    assert ">step 0</text>" in page.cards[0]
    backend.status = "Succeed"
    until(lambda: "Succeed" in page.cards[0])
    assert backend.calls.count("metrics") == 2, "when it is first seen, and at the end"


def test_a_job_that_was_opened_again_has_its_curve(page: Page) -> None:
    backend = Reporting()
    backend.extra, backend.status = LATEST, "Succeed"
    job = TrainingJob("train1", backend)
    with pytest.raises(NotImplementedError):
        job._ipython_display_()  # the still card of an ended job follows
    backend.lines = {"train1-master-0": [f"epoch {number}" for number in range(40)]}
    card = job._repr_html_() or ""
    assert ">step 0</text>" in card
    assert card.count("epoch ") == 15
    assert "epoch 39" in card


def test_a_job_of_a_list_has_its_curve(page: Page) -> None:
    backend = Reporting()
    backend.status = "Succeed"
    (record,) = backend.list()
    backend.extra = LATEST  # a list has no last values
    card = TrainingJob("train1", backend, record=record)._repr_html_() or ""
    assert ">step 0</text>" in card
    assert "<b>1</b>" in card


# ---- buttons


def shown_buttons(stop: Callable[[], None] = lambda: None, on_log: Callable[[bool], None] = print) -> JobButtons:
    """Buttons of a kernel that the page reaches."""
    buttons = JobButtons(stop, on_log)
    buttons.offer(0.0)
    buttons.offer(2.0)
    buttons.box._view_count = 1  # as the page sends it
    return buttons


def test_the_stop_button_requests_the_end(page: Page) -> None:
    backend = FakeBackend()
    backend.lines = {"train1-master-0": []}
    TrainingJob("train1", backend)._ipython_display_()
    until(lambda: len(page.widgets) == 1)
    box: Any = page.widgets[0]
    assert box.layout.display == "none"
    box._view_count = 1
    assert box.layout.display is None
    stop, _, _ = box.children
    stop.click()
    until(lambda: backend.calls == ["stop"])
    until(lambda: stop.layout.display == "none")
    assert "Terminated" in page.cards[0]


def test_a_refused_stop_is_shown(page: Page) -> None:
    def refuse() -> None:
        raise InvalidRequestError("it has ended", code="Invalid", status_code=400, request_id="r")

    stop, _, said = shown_buttons(refuse).box.children
    stop.click()
    until(lambda: "it has ended" in said.value)
    until(lambda: not stop.disabled)


def test_the_log_button_shows_more_lines(page: Page) -> None:
    display = JupyterDisplay(job=TrainingJob("train1", FakeBackend()))
    display.submitted(JobRecord.model_validate({"TrainingJobId": "train1", "Status": "Running"}))
    for number in range(40):
        display.line(LogLine("train1-master-0", number, f"line {number};"))
    display.stop_beat()
    log = shown_buttons(on_log=display.show_log).box.children[1]
    assert page.cards[0].count("line ") == 15
    log.value = True
    assert page.cards[0].count("line ") == 40
    log.value = False
    assert page.cards[0].count("line ") == 15


def test_buttons_that_the_page_does_not_count_stay_hidden_and_leave_nothing(page: Page) -> None:
    buttons = JobButtons(lambda: None, lambda _: None)
    boxes = set()
    for now in range(60):
        buttons.offer(float(now))
        boxes.add(buttons.box)
        assert buttons.box is None or buttons.box.layout.display == "none"
    assert len(boxes - {None}) == 3, "a few tries"
    buttons.ended()
    assert page.widgets == [""], "one place on the page, which is empty at the end"


def test_a_count_that_comes_after_the_end_shows_nothing(page: Page) -> None:
    buttons = JobButtons(lambda: None, lambda _: None)
    buttons.offer(0.0)
    buttons.offer(2.0)
    box = buttons.box
    buttons.ended()
    box._view_count = 1
    assert box.layout.display == "none"


def test_without_ipywidgets_there_is_the_text_of_the_card(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    buttons = JobButtons(lambda: None, lambda _: None)
    for now in range(10):
        buttons.offer(float(now))
    buttons.ended()
    assert page.widgets == []

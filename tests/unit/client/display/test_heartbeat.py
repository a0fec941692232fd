"""A display shows that time passes while nothing is said; nothing of it is left when the waiting is over."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pai_sdk._client.display.base import Silent
from pai_sdk._client.display.choice import heartbeat
from pai_sdk._client.display.jupyter import JupyterDisplay
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import JobRecord, LogLine
from pai_sdk._wire.pai.status import JobStatus
from tests.support.fake_backend import FAST, FakeBackend
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.interpreter

RUNNING = JobRecord(training_job_id="t", status=JobStatus.RUNNING)


class Page:
    """A notebook's page: the cards on it, as they are now."""

    def __init__(self) -> None:
        self.cards: list[str] = []
        self.drawn = 0

    def display(self, html: Any, display_id: bool) -> Card:
        self.drawn += 1
        self.cards.append(html.data)
        return Card(self, len(self.cards) - 1)


class Card:
    def __init__(self, page: Page, number: int) -> None:
        self.page, self.number = page, number

    def update(self, html: Any) -> None:
        self.page.drawn += 1
        self.page.cards[self.number] = html.data


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    page = Page()
    monkeypatch.setattr("IPython.display.display", page.display)
    return page


def test_a_line_that_came_too_soon_to_be_drawn_is_drawn_with_the_next_beat(page: Page) -> None:
    display = JupyterDisplay(clock=Clock())
    display.changed(RUNNING)
    display.line(LogLine("t-master-0", 0, "the last words before an hour of silence"))
    assert "the last words" not in page.cards[0]
    display.beat()
    assert "the last words" in page.cards[0]


def test_a_card_is_redrawn_now_and_then_but_not_so_often_that_nothing_on_it_can_be_marked(page: Page) -> None:
    clock = Clock()
    display = JupyterDisplay(clock=clock)
    display.changed(RUNNING)
    for _ in range(60):
        clock.now += 0.5
        display.beat()
    assert 4 <= page.drawn - 1 <= 8


def test_a_card_of_a_job_that_has_ended_is_left_alone(page: Page) -> None:
    clock = Clock()
    display = JupyterDisplay(clock=clock)
    display.ended(JobRecord(training_job_id="t", status=JobStatus.SUCCEED))
    clock.now += 100
    display.beat()
    assert page.drawn == 1


def test_who_stops_waiting_sees_the_last_line(page: Page) -> None:
    display = JupyterDisplay(clock=Clock())
    with heartbeat(display, beat_s=PATIENCE_S):
        display.changed(RUNNING)
        display.line(LogLine("t-master-0", 0, "so far"))
    assert "so far" in page.cards[0]


def test_one_card_takes_the_place_of_another(page: Page) -> None:
    first = JupyterDisplay()
    first.submitted(JobRecord(training_job_id="t", status=JobStatus.SUBMITTED))
    second = JupyterDisplay(instead_of=first)
    second.ended(JobRecord(training_job_id="t", status=JobStatus.SUCCEED))
    (card,) = page.cards
    assert "Succeed" in card


def test_a_job_that_is_waited_for_in_its_cell_has_one_card(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pai_sdk._client.job.notebook_card.notebook_cell", lambda: 3)
    monkeypatch.setattr("pai_sdk._client.display.choice.in_notebook", lambda: True)
    backend = FakeBackend()
    backend.lines = {"train1-master-0": ["only once"]}
    job = TrainingJob("train1", backend)
    card = JupyterDisplay()
    card.submitted(job.refresh())
    job.render_in(card)
    backend.status = "Succeed"
    job.wait(policy=FAST)
    job.wait(policy=FAST)
    (card_html,) = page.cards
    assert "Succeed" in card_html
    assert card_html.count("only once") == 1


class Beating(Silent):
    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.beaten = threading.Event()
        self.rested = False

    def beat(self) -> None:
        self.beaten.set()
        if self.fault:
            raise self.fault

    def stop_beat(self) -> None:
        self.rested = True


@pytest.mark.parametrize("fault", [None, BrokenPipeError(), ValueError("I/O operation on closed file")])
def test_it_beats_from_a_thread_that_ends_with_the_waiting(fault: Exception | None) -> None:
    display = Beating(fault)
    with heartbeat(display, beat_s=0.001):
        assert display.beaten.wait(PATIENCE_S)
    assert display.rested
    until(lambda: "pai-display" not in [thread.name for thread in threading.enumerate()])


def test_a_display_without_a_heartbeat_stays_as_it_is() -> None:
    before = {*threading.enumerate()}
    with heartbeat(Silent()):
        assert {*threading.enumerate()} <= before

"""A new job is shown with its notes; a process shows each kind of note once."""

from __future__ import annotations

import pytest

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.display.base import Silent
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submission import announce as module
from pai_sdk._client.submission.announce import announce
from pai_sdk._core.reasons import image_unused_message
from pai_sdk._wire.pai.request import TrainingJobRequest
from tests.support.fake_backend import FakeBackend


class Notices(Silent):
    def __init__(self) -> None:
        self.shown: list[str] = []

    def notice(self, text: str) -> None:  # type: ignore[override]
        self.shown.append(text)


def notices(monkeypatch: pytest.MonkeyPatch, *notes: str, shown: bool = True) -> list[str]:
    """The notices of a submission in which `notes` and one warning are to be shown."""
    display = Notices()
    monkeypatch.setattr(module, "choose_display", lambda job: display)
    body = {"TrainingJobName": "n", "ComputeResource": {"EcsSpec": "ecs.x"}}
    plan = Plan(TrainingJobRequest.model_validate(body), notes=notes, warnings=("a warning",))
    announce(TrainingJob("train1", FakeBackend()), plan, is_visible=shown)
    return display.shown


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_announced_notes", set())


def test_the_note_about_images_is_shown_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    note, other_image = image_unused_message("python:3.11"), image_unused_message("pytorch:2")
    assert notices(monkeypatch, note) == ["a warning", note]
    assert notices(monkeypatch, note) == ["a warning"]
    assert notices(monkeypatch, other_image) == ["a warning"]


def test_another_note_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    notices(monkeypatch, "images: not used")
    assert notices(monkeypatch, "images: not used", "disks: small") == ["a warning", "disks: small"]


def test_a_note_that_was_not_shown_is_shown_later(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notices(monkeypatch, "images: not used", shown=False) == []
    assert notices(monkeypatch, "images: not used") == ["a warning", "images: not used"]

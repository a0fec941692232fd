"""Ctrl-C counts once, and its message says what happens to the job."""

from __future__ import annotations

import signal

import pytest

from pai_sdk._client.job import interrupts


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_a_second_press_does_not_interrupt_the_message() -> None:
    printed = []
    with interrupts.single_interrupt():
        try:
            press()
        except KeyboardInterrupt:
            press()
            printed.append("to the end")
    assert printed == ["to the end"]


def test_an_exit_writes_its_lines_undisturbed() -> None:
    printed = []
    with interrupts.ignore_interrupts():
        press()
        printed.append("to the end")
    assert printed == ["to the end"]
    with pytest.raises(KeyboardInterrupt):
        press()


@pytest.mark.parametrize(
    ("interrupt", "message"),
    [
        (
            interrupts.detached("train1", ["pai-sdk logs -f train1"]),
            "train1 is still running. To follow it: pai-sdk logs -f train1",
        ),
        (
            interrupts.all_detached(["train1", "train2"], ["pai-sdk ps"]),
            "2 jobs are still running. To list them: pai-sdk ps",
        ),
        (interrupts.all_stopped(["train1"], ["train2", "train3"]), "1 job has finished; 2 are being stopped"),
        (interrupts.all_stopped(["train1", "train2"], []), "2 jobs have finished"),
        (interrupts.stopped("train1"), "train1 was stopped"),
        (
            interrupts.stopping("train1", ["pai-sdk logs -f train1", "pai-sdk status train1"]),
            "train1 is being stopped. To follow it: pai-sdk logs -f train1",
        ),
        (
            interrupts.search_interrupted("file:///studies/digits/"),
            "the search was stopped; to resume it, run it again with study='file:///studies/digits/'",
        ),
    ],
)
def test_the_message_says_what_happens_to_the_jobs(interrupt: KeyboardInterrupt, message: str) -> None:
    assert str(interrupt) == message

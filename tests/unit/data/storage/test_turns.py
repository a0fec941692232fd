"""Turns: one thread at a time, but no thread waits for one that is stuck."""

from __future__ import annotations

import threading

from pai_sdk._data.storage.permits import Permits, without_permit
from tests.support.waiting import PATIENCE_S


def test_of_many_threads_one_has_the_turn() -> None:
    turns = Permits(check_interval_s=PATIENCE_S)  # a busy machine ends no turn for a while
    inside: list[int] = []
    most: list[int] = []

    def compute() -> None:
        for _ in range(200):
            with turns.hold():
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=compute) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(most) == 8 * 200
    assert set(most) == {1}


def test_a_thread_that_waits_gives_its_turn_to_another() -> None:
    turns = Permits()
    with turns.hold():
        assert turns._lock.locked()
        with without_permit():
            assert not turns._lock.locked()
        assert turns._lock.locked()
    assert not turns._lock.locked()


def test_a_thread_goes_on_without_a_turn_when_another_one_is_stuck() -> None:
    turns, stuck, end = Permits(), threading.Event(), threading.Event()

    def wait_for_disk() -> None:
        with turns.hold():
            stuck.set()
            end.wait(PATIENCE_S)

    slow = threading.Thread(target=wait_for_disk)
    slow.start()
    assert stuck.wait(PATIENCE_S)
    with turns.hold():
        assert not end.is_set()
        with without_permit():  # it has none to give
            assert turns._lock.locked()
    assert turns._lock.locked()  # the turn of the other thread was not ended
    end.set()
    slow.join(PATIENCE_S)
    assert not turns._lock.locked()


def test_a_turn_ends_with_an_error_and_within_another_turn() -> None:
    outer, inner = Permits(), Permits()
    with outer.hold():
        try:
            with inner.hold():
                raise ValueError
        except ValueError:
            assert not inner._lock.locked()
        assert outer._lock.locked()
    assert not outer._lock.locked()


def test_without_a_turn_nothing_is_given() -> None:
    turns = Permits()
    with without_permit():
        assert not turns._lock.locked()
        with turns.hold():
            assert turns._lock.locked()
    assert not turns._lock.locked()

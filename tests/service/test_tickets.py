"""One-time tickets: used once, within a minute, and no more of them than the limit."""

from __future__ import annotations

import re
import threading

from pai_sdk._service.services.tickets import TICKET_LIFE_S, Tickets


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_ticket_is_worth_its_value_once() -> None:
    tickets = Tickets[str]()
    ticket = tickets.new_ticket("model.pt")
    assert re.fullmatch("[A-Za-z0-9_-]{43}", ticket)
    assert [tickets.redeem(ticket), tickets.redeem(ticket)] == ["model.pt", None]


def test_what_is_no_ticket_is_worth_nothing() -> None:
    tickets = Tickets[str]()
    tickets.new_ticket("model.pt")
    assert [tickets.redeem(text) for text in ("", "made-up", "\ud800", "a" * 100_000)] == [None] * 4


def test_a_ticket_expires_after_a_minute() -> None:
    clock = Clock()
    tickets = Tickets[str](clock=clock)
    early, late = tickets.new_ticket("early"), tickets.new_ticket("late")
    clock.now += TICKET_LIFE_S
    assert tickets.redeem(early) == "early"
    clock.now += 0.1
    assert tickets.redeem(late) is None


def test_beyond_the_limit_the_oldest_ticket_is_dropped() -> None:
    tickets = Tickets[int](max_tickets=3)
    made = [tickets.new_ticket(n) for n in range(5)]
    assert [tickets.redeem(ticket) for ticket in made] == [None, None, 2, 3, 4]


def test_of_threads_that_take_the_same_ticket_one_gets_the_value() -> None:
    tickets = Tickets[str]()
    ticket, taken = tickets.new_ticket("once"), []
    threads = [threading.Thread(target=lambda: taken.append(tickets.redeem(ticket))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken, key=str) == [None] * 15 + ["once"]

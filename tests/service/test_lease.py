"""The lease by a simulated clock: there is never a second holder while the first may act."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from pai_sdk._service.state.folder import DataFolder
from pai_sdk._service.state.lease import LASTS_S, Lease
from pai_sdk._service.state.process_names import ProcessName
from pai_sdk.errors import ServiceStartError
from tests.support.waiting import until


@dataclass
class SimulatedTable:
    """The row, in a world whose time only passes here. Requests and responses take the delays that come next."""

    now: float = 0.0
    skew_s: float = 1000.0  # of the database's clock: its holders do not know
    number: int = 0
    expires_at: float = 0.0
    delays: list[tuple[float, float]] = field(default_factory=list)
    is_reachable: bool = True
    loses_responses: bool = False

    @property
    def can_be_taken(self) -> bool:
        return self.now + self.skew_s >= self.expires_at

    def acquire(self) -> int | None:
        if not self.can_be_taken:
            return None
        self.number += 1
        self.expires_at = self.now + self.skew_s + LASTS_S
        return self.number

    def renew(self, number: int) -> bool:
        there_s, back_s = self.delays.pop(0) if self.delays else (0.0, 0.0)
        self.now += there_s
        if not self.is_reachable:
            raise OperationalError("renew", {}, OSError("no route"))
        is_ours = number == self.number
        if is_ours:
            self.expires_at = self.now + self.skew_s + LASTS_S
        self.now += back_s
        if self.loses_responses:
            raise OperationalError("renew", {}, OSError("reset"))
        return is_ours

    def release(self, number: int) -> None:
        if number == self.number:
            self.number, self.expires_at = self.number + 1, self.now + self.skew_s


def held_lease(table: SimulatedTable, exits: list[int] | None = None) -> Lease:
    sent_at, number = table.now, table.acquire()
    assert number is not None
    codes = [] if exits is None else exits
    return Lease(table, number, sent_at=sent_at, clock=lambda: table.now, exit_now=codes.append)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.floats(0, 12)),
        st.tuples(st.just("renew"), st.tuples(st.floats(0, 6), st.floats(0, 6))),
        st.tuples(st.just("unreachable"), st.booleans()),
        st.tuples(st.just("responses lost"), st.booleans()),
        st.tuples(st.just("another tries"), st.none()),
    ),
    max_size=40,
)


@given(steps)
@example([("renew", (0.0, 5.0)), ("pass", 3.5)])  # a response that was long on its way makes the lease no longer
@example([("renew", (5.0, 0.0)), ("pass", 2.9)])
def test_another_holds_it_only_when_the_first_must_have_ended(script: list[tuple[str, object]]) -> None:
    table = SimulatedTable()
    first = held_lease(table)
    for step, value in script:
        if step == "pass":
            table.now += value
        elif step == "renew":
            table.delays = [value]
            first.renew()
        elif step == "unreachable":
            table.is_reachable = not value
        elif step == "responses lost":
            table.loses_responses = value
        else:
            table.acquire()
        if table.can_be_taken:
            assert first.verdict() == "exit"
        if table.number != first.number:
            assert not first.is_valid


@given(st.lists(st.tuples(st.floats(0, 1.9), st.floats(0, 1.9)), max_size=50))
def test_a_holder_that_reaches_the_database_goes_on(delays: list[tuple[float, float]]) -> None:
    table = SimulatedTable()
    lease = held_lease(table)
    for delay in delays:
        table.delays = [delay]
        assert lease.renew()
        assert lease.is_valid
        table.now += 2.0
        assert lease.verdict() == "continue"
        assert table.acquire() is None


def test_one_that_cannot_renew_it_stops_after_6_s_and_is_gone_before_8() -> None:
    table, exits = SimulatedTable(), list[int]()
    lease = held_lease(table, exits)
    table.is_reachable = False
    found: dict[str, float] = {}
    while not exits:
        table.now += 0.1
        lease.renew()
        lease.watch()
        found.setdefault(lease.verdict(), table.now)
    assert found["stop"] == pytest.approx(6, abs=0.2)
    assert found["exit"] == pytest.approx(7.5, abs=0.2)
    assert (lease.loss, exits) == ("its database could not be reached for 6 seconds", [1])


@pytest.mark.parametrize("suspended_s", [6.5, 7.6, 3600.0])
def test_one_that_was_suspended_goes_on_if_no_other_has_taken_over(suspended_s: float) -> None:
    table, exits = SimulatedTable(), list[int]()
    lease = held_lease(table, exits)
    lease.watch()
    table.now += suspended_s
    lease.watch()
    assert not lease.is_valid
    assert (lease.loss, exits) == (None, [])
    lease.renew()
    lease.watch()
    assert lease.is_valid


def test_one_that_was_suspended_and_cannot_renew_its_lease_ends_within_a_second() -> None:
    table, exits = SimulatedTable(), list[int]()
    lease = held_lease(table, exits)
    table.is_reachable = False
    table.now += 9
    lease.watch()
    lease.renew()
    assert not exits
    table.now += 5  # suspended once more, without a renewal
    lease.watch()
    assert exits == [1]


@pytest.mark.parametrize("pause_s", [1.0, 3.9, 5.0, 7.0])
def test_one_that_cannot_renew_its_lease_and_gets_little_time_ends_when_it_can(pause_s: float) -> None:
    table, exits = SimulatedTable(), list[int]()
    lease = held_lease(table, exits)
    table.is_reachable = False
    while table.now + pause_s < 7.5:
        table.now += pause_s
        lease.watch()
    table.now = 7.5
    lease.watch()
    assert exits == [1]


def test_a_slow_renewal_is_followed_by_the_next_one_at_once() -> None:
    table = SimulatedTable()
    lease = held_lease(table)
    lease.start()
    table.delays = [(0.0, 4.0)]
    table.now += 2
    until(lambda: table.expires_at >= table.skew_s + 6 + LASTS_S, "the renewal after the slow one")
    lease.close()


def test_one_whose_lease_was_taken_ends_at_once() -> None:
    table, exits = SimulatedTable(), list[int]()
    lease = held_lease(table, exits)
    table.now += 20  # suspended
    assert table.acquire() == 2
    assert not lease.is_valid
    lease.renew()
    lease.watch()
    assert (lease.loss, exits) == ("another service has taken over its database", [1])


def test_a_lease_that_was_given_back_can_be_taken_at_once() -> None:
    table = SimulatedTable()
    lease = held_lease(table)
    lease.start()
    lease.close()
    assert table.acquire() == 3


# ---- processes --------------------------------------------------------------------------------------------


def test_a_process_that_was_killed_has_ended_and_one_that_is_suspended_can_be_killed() -> None:
    program = (
        "import pai_sdk._service.state.process_names as p; print(p.ProcessName.current().to_json(), flush=True)"
    )
    command = [sys.executable, "-c", f"{program}; input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name = ProcessName.parse(process.stdout.readline())
        assert name is not None
        assert name.is_observable()
        assert not name.has_exited()
        os.kill(process.pid, signal.SIGSTOP)
        assert not name.has_exited()
        assert not replace(name, machine="another").kill(patience_s=0)
        assert name.kill(patience_s=10)
        assert process.wait() == -signal.SIGKILL
    assert name.has_exited()


def test_this_process_never_ends_itself() -> None:
    assert not ProcessName.current().has_exited()
    assert not ProcessName.current().kill(patience_s=0)
    assert ProcessName.parse(ProcessName.current().to_json()) == ProcessName.current()
    assert ProcessName.parse("") is None
    assert ProcessName.parse('{"pid": 1}') is None


# ---- the folder -------------------------------------------------------------------------------------------


def test_the_next_holder_of_a_lease_gets_the_folder_from_the_last_one(tmp_path: Path) -> None:
    with DataFolder(tmp_path, mark="m1") as last:
        with pytest.raises(ServiceStartError, match="another service already runs on"), DataFolder(tmp_path):
            pass
        with pytest.raises(ServiceStartError, match="already runs on"), DataFolder(tmp_path, mark="m2"):
            pass
        assert not last.is_gone
        with DataFolder(tmp_path, mark="m1") as following:
            assert last.is_gone
            assert not following.is_gone


def test_a_service_without_a_lease_keeps_its_folder(tmp_path: Path) -> None:
    with (
        DataFolder(tmp_path) as folder,
        pytest.raises(ServiceStartError, match="already runs on"),
        DataFolder(tmp_path, mark="m1"),
    ):
        pass
    assert not folder.is_gone

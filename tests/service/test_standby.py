"""Two services on one database: the second takes over when the first ends, is killed, hangs or is cut off."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from pai_sdk import Session
from pai_sdk._service.state.lease import LASTS_S
from tests.service import postgres
from tests.service.certificates import Authority
from tests.service.identity.expiry import DAY_S, expire, with_expiring_key
from tests.service.identity.test_page_sessions import page_of, send
from tests.service.identity.test_two_users import user
from tests.service.postgres import url_for
from tests.service.services import Client, job_body, session_on
from tests.service.two_services import APART, Pair, ServiceProcess, front_of, wire_to
from tests.support.waiting import PATIENCE_S, until

TAKEOVER_S = 10.0  # and what a start takes on this machine, which may be busy
LINES, JOBS = 60, 10
COUNTS = f"echo $0 >> STARTS; for i in $(seq 1 {LINES}); do echo line $i; sleep 0.2; done"

pytestmark = [
    pytest.mark.skipif(not postgres.is_used(), reason="python -m tests.service.postgres runs it"),
    pytest.mark.timeout(600),
]

can_be_apart = (
    os.getuid() == 0 and subprocess.run([*APART, "true"], check=False, capture_output=True).returncode == 0
)
apart = pytest.param(APART, id="apart", marks=pytest.mark.skipif(not can_be_apart, reason="needs namespaces"))
beside = pytest.param((), id="beside")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    url = url_for(tmp_path / "data")
    assert url is not None
    with ExitStack() as stack:
        yield Pair(tmp_path / "data", url, tmp_path, stack)


def counting_job(starts: Path, name: str) -> dict[str, object]:
    """A job that notes each of its starts, and counts to the last line."""
    command = COUNTS.replace("STARTS", str(starts)).replace("$0", name)
    return job_body(command, TrainingJobName=name)


def active_and_standby(
    pair: Pair, within: tuple[str, ...] = (), *, url: str = ""
) -> tuple[ServiceProcess, ServiceProcess, float]:
    """Returns both, and the seconds in which the standby must take over."""
    begun = time.monotonic()
    active = pair.start(url=url or pair.url)
    takeover_s = TAKEOVER_S + active.until_it_is("ok") - begun
    standby = pair.start(standby=True, within=within)
    standby.until_it_is("standby")
    return active, standby, takeover_s


@pytest.mark.parametrize("within", [beside, apart])
def test_the_active_one_is_killed_with_jobs_running(pair: Pair, tmp_path: Path, within: tuple[str, ...]) -> None:
    active, standby, takeover_s = active_and_standby(pair, within)
    starts = tmp_path / "starts"
    with front_of(active, standby) as port:
        client, followed = pair.client(port), dict[str, list[str]]()
        ids = [client.create(counting_job(starts, f"job{number}")) for number in range(JOBS)]
        for job_id in ids:
            client.until(job_id, "Running")
        session = pair.stack.enter_context(session_on(client.info))
        followers = [threading.Thread(target=follow, args=(session, each, followed)) for each in ids]
        for follower in followers:
            follower.start()
        until(lambda: len(followed) == JOBS, "the first lines")
        time.sleep(2)
        active.program.kill()
        killed_at = time.monotonic()
        took_s = standby.until_it_is("ok") - killed_at
        assert took_s < takeover_s
        for job_id in ids:
            assert client.until(job_id)["Status"] == "Succeed"
        for follower in followers:
            follower.join(PATIENCE_S)
        expected = [f"line {number}" for number in range(1, LINES + 1)]
        for job_id in ids:
            assert counted(client.log(job_id)) == expected
            assert counted(followed[job_id]) == expected
            statuses = [each["Status"] for each in client.get(f"/trainingjobs/{job_id}")["StatusTransitions"]]
            assert Counter(statuses)["Succeed"] == Counter(statuses)["Running"] == 1
        assert sorted(starts.read_text().split()) == sorted(f"job{number}" for number in range(JOBS))


def follow(session: Session, job_id: str, seen: dict[str, list[str]]) -> None:
    for line in session.get_job(job_id).logs(follow=True):
        seen.setdefault(job_id, []).append(line.text)


def counted(lines: list[str]) -> list[str]:
    return [line.rpartition("line ")[1] + line.rpartition("line ")[2] for line in lines if "line " in line]


@pytest.mark.parametrize("within", [beside, apart])
def test_one_that_was_suspended_changes_nothing_when_it_goes_on(
    pair: Pair, tmp_path: Path, within: tuple[str, ...]
) -> None:
    active, standby, takeover_s = active_and_standby(pair, within)
    client, starts = pair.client(active.port), tmp_path / "starts"
    ids = [client.create(counting_job(starts, f"job{number}")) for number in range(4)]
    active.program.send_signal(signal.SIGSTOP)
    stopped_at = time.monotonic()
    took_s = standby.until_it_is("ok") - stopped_at
    assert took_s < takeover_s
    time.sleep(max(0.0, stopped_at + 20 - time.monotonic()))
    active.program.send_signal(signal.SIGCONT)
    code = active.program.wait(PATIENCE_S)
    assert code == (1 if within else -signal.SIGKILL)  # it sees that it is over; or it was killed
    client = pair.client(standby.port)
    for job_id in ids:
        assert client.until(job_id)["Status"] == "Succeed"
    assert sorted(starts.read_text().split()) == [f"job{number}" for number in range(4)]


def test_one_that_is_cut_off_from_the_database_ends_before_the_other_begins(pair: Pair) -> None:
    with wire_to(pair.url) as (wire, url):
        active, standby, takeover_s = active_and_standby(pair, APART if can_be_apart else (), url=url)
        wire.cut()
        cut_at, ended = time.monotonic(), list[float]()

        def note_the_end() -> None:
            active.program.wait()
            ended.append(time.monotonic())

        waiting = threading.Thread(target=note_the_end)
        waiting.start()
        took_over_at = standby.until_it_is("ok")
        waiting.join(PATIENCE_S)
        assert active.program.returncode == 1
        assert ended[0] < took_over_at
        assert took_over_at - cut_at < takeover_s
        assert "its database could not be reached for 6 seconds" in active.said


def test_a_short_interruption_is_lived_through(pair: Pair) -> None:
    with wire_to(pair.url) as (wire, url):
        active = pair.start(url=url)
        active.until_it_is("ok")
        standby = pair.start(standby=True)
        standby.until_it_is("standby")
        wire.cut()
        time.sleep(2.5)
        wire.mend()
        time.sleep(8)
        assert (active.health(), standby.health()) == ("ok", "standby")
        client = pair.client(active.port)
        assert client.until(client.create(job_body()))["Status"] == "Succeed"


def test_the_database_is_restarted(pair: Pair, tmp_path: Path) -> None:
    with postgres.cluster() as url:
        pair.url = url
        active, standby, _ = active_and_standby(pair)
        client = pair.client(active.port)
        job_id = client.create(job_body("sleep 5"))
        postgres.restart(url)
        assert client.until(job_id)["Status"] == "Succeed"
        time.sleep(5)
        assert (active.health(), standby.health()) == ("ok", "standby")
        postgres.stop(url)
        answer = client.call("GET", f"/trainingjobs/{job_id}")
        assert (answer.status_code, answer.json()["Code"]) == (503, "ServiceUnavailable")
        assert int(answer.headers["Retry-After"]) > 0
        assert active.program.wait(PATIENCE_S) == 1
        assert "its database could not be reached for 6 seconds" in active.said
        postgres.restart(url)
        standby.until_it_is("ok", within_s=PATIENCE_S)


def test_an_orderly_end_lets_the_other_begin_at_once(pair: Pair) -> None:
    active, standby, _ = active_and_standby(pair)
    assert active.end() == 0
    ended_at = time.monotonic()
    assert standby.until_it_is("ok") - ended_at < LASTS_S - 2.0  # the lease was renewed two seconds ago at most
    assert standby.end() == 0


def test_a_standby_refuses_requests_and_writes_nothing_into_the_folder(pair: Pair) -> None:
    active, standby, _ = active_and_standby(pair)
    client = pair.client(standby.port)
    refused = client.call("GET", "/trainingjobs")
    assert (refused.status_code, refused.json()["Code"]) == (503, "ServiceUnavailable")
    assert refused.headers["Retry-After"] == "1"
    assert f":{active.port}" in (pair.data / "service.json").read_text()
    assert standby.end() == 0  # without its turn
    assert active.health() == "ok"


def test_with_tls_it_takes_over_and_knows_who_was_added_and_revoked(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.file))
    pair.certificate = authority.issue("127.0.0.1")
    active, standby, _ = active_and_standby(pair)
    assert "standing by on https://127.0.0.1" in standby.said
    operator = pair.client(active.port)
    alice, bob = user(operator, "alice"), user(operator, "bob")
    job_id = alice.create(job_body("echo one job of alice"))
    assert alice.until(job_id)["Status"] == "Succeed"
    assert operator.call("DELETE", f"/users/bob/keys/{bob.info.access_key_id}").status_code == 200
    active.program.kill()
    standby.until_it_is("ok")
    alice, bob = (Client(replace(each.info, endpoint=url_of(pair, standby))) for each in (alice, bob))
    assert alice.get(f"/trainingjobs/{job_id}")["Status"] == "Succeed"
    assert bob.call("GET", "/trainingjobs").json()["Code"] == "InvalidAccessKeyId.NotFound"


def test_a_sign_out_and_the_expiry_of_a_key_hold_after_a_takeover(pair: Pair) -> None:
    active = pair.start()
    active.until_it_is("ok")
    # On another address with the same port, as on another machine: the cookies of both are the same.
    standby = pair.start(standby=True, host="127.0.0.2", port=active.port)
    standby.until_it_is("standby")
    operator = pair.client(active.port)
    alice = user(operator, "alice")
    ended = with_expiring_key(operator, "alice", DAY_S)
    out, stays, expired = page_of(operator), page_of(alice), page_of(ended)
    assert send(operator, out, "DELETE", "/ui/session", {}).status == 200
    expire(operator, ended, "alice", data_dir=pair.data)
    active.program.kill()
    standby.until_it_is("ok")
    about = f"http://127.0.0.2:{standby.port}/ui/about"
    for page, status in ((out, 401), (stays, 200), (expired, 401)):
        headers = {"Cookie": page["Cookie"], "X-PAI-UI": page["X_PAI_UI"]}
        assert requests.get(about, headers=headers, timeout=PATIENCE_S).status_code == status


def url_of(pair: Pair, service: ServiceProcess) -> str:
    return pair.client(service.port).info.endpoint


def test_without_standby_a_second_one_is_refused(pair: Pair) -> None:
    pair.start().until_it_is("ok")
    second = pair.start()
    assert second.program.wait(PATIENCE_S) == 1
    assert "another service already runs on the database" in second.said
    assert "--standby" in second.said


def test_after_a_kill_the_next_one_begins_without_waiting_for_the_lease(pair: Pair) -> None:
    begun = time.monotonic()
    active = pair.start()
    start_s = active.until_it_is("ok") - begun
    active.program.kill()
    active.program.wait()
    pair.start().until_it_is("ok", within_s=max(LASTS_S, 2 * start_s))


def test_a_service_of_an_earlier_release_keeps_the_database(pair: Pair) -> None:
    import psycopg
    from sqlalchemy import make_url

    url = make_url(pair.url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url) as earlier:  # such a service holds this lock as long as it runs
        earlier.execute("SELECT pg_advisory_lock(1885432180, hashtext(current_schema()))")
        second = pair.start()
        assert second.program.wait(PATIENCE_S) == 1
        assert "another service already runs on the database" in second.said
        standby = pair.start(standby=True)
        standby.until_it_is("standby")
    standby.until_it_is("ok")

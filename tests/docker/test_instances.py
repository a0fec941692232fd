"""Jobs of several instances: they find each other, succeed together, and fail as the first of them did."""

from __future__ import annotations

import pytest

from pai_sdk.errors import JobFailed
from tests.docker.conftest import lines_of
from tests.support.waiting import PATIENCE_S

# A ring: each rank passes what it knows to the next one until all know the sum of all ranks.
ALL_REDUCE = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
def read(sock, count):
    data = b""
    while len(data) < count:
        data += sock.recv(count - len(data))
    return int.from_bytes(data, "big")
value = 10 ** rank
if rank == 0:
    server = socket.create_server(("", master[1]))
    peers = [server.accept()[0] for _ in range(size - 1)]
    total = value + sum(read(peer, 8) for peer in peers)
    for peer in peers:
        peer.sendall(total.to_bytes(8, "big"))
else:
    while True:
        try:
            sock = socket.create_connection(master, timeout=10)
            sock.settimeout(None)  # the others may be much slower to come
            break
        except OSError:
            time.sleep(0.1)
    sock.sendall(value.to_bytes(8, "big"))
    total = read(sock, 8)
print(f"rank {rank} of {size}: sum {total}", flush=True)
"""


def test_three_instances_reduce_over_tcp(submit):
    job = submit('python3 -c "$PROGRAM"', count=3, Environments={"PROGRAM": ALL_REDUCE})
    job.wait(timeout=PATIENCE_S, show_logs=False)
    assert [lines_of(job, rank) for rank in range(3)] == [[f"rank {rank} of 3: sum 111"] for rank in range(3)]


def test_the_first_failure_stops_the_rest_and_is_the_one_reported(submit):
    command = "[ $RANK = 1 ] && exit 7; trap 'echo told' TERM; while :; do sleep 0.1; done"
    job = submit(command, count=3, tags={"pai-sdk.local.grace_s": "1"})
    with pytest.raises(JobFailed, match="exit code 7") as failed:
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert failed.value.instance == f"{job.id}-worker-0"
    assert [one.status for one in job.record.instances] == ["Terminated", "Failed", "Terminated"]


def test_an_early_success_stops_nobody(submit):
    job = submit("[ $RANK = 1 ] && exit 0; sleep 2; echo late", count=2).wait(timeout=PATIENCE_S, show_logs=False)
    assert job.status == "Succeed"
    assert lines_of(job) == ["late"]


def test_an_instance_killed_from_outside_is_told_to_the_others(submit, engine):
    job = submit("echo up; sleep 1000", count=2)
    next(iter(job.logs(follow=True)))
    with engine.client() as client:
        client.containers.get(f"{job.id}-worker-0").kill()
    with pytest.raises(JobFailed) as failed:
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert failed.value.instance == f"{job.id}-worker-0"


def test_two_jobs_at_once_do_not_meet(submit):
    jobs = [submit('python3 -c "$PROGRAM"', count=2, Environments={"PROGRAM": ALL_REDUCE}) for _ in range(2)]
    for job in jobs:
        job.wait(timeout=PATIENCE_S, show_logs=False)
        assert lines_of(job, 0) == ["rank 0 of 2: sum 11"]

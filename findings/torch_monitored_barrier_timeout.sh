#!/usr/bin/env bash
# torch 2.13.0, gloo: `monitored_barrier(timeout=…)` holds that timeout on rank 0 only, and never names rank 0.
#
# Three ranks, whose group has a timeout of 8 seconds, call `monitored_barrier(timeout=2 s)`. In the first run rank 2
# comes after 10 seconds, in the second run rank 0 does.
# Behaviour: if rank 2 is late, rank 0 says so after 2 seconds. If rank 0 is late, the others wait for the timeout of
#   the group (30 minutes by default), whatever the argument is. Their error refers to the log of rank 0 "for faulty
#   rank"; rank 0 itself, when it comes, reports that a remote worker has closed the connection.
# Expected: that each rank fails after the argument, and that the late rank is named in both cases. One who looks for
#   the rank that hangs suspects everyone but rank 0, which is often the one: it writes checkpoints and evaluates.
# Sources: https://pytorch.org/docs/stable/distributed.html, `monitored_barrier`;
#   torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, `monitoredBarrier`: only rank 0 uses the argument.
#
# Output (seconds are rounded):
#   rank 2 late, rank 0: 2 s, [Rank 0]: Rank 2 failed to pass monitoredBarrier in 2000 ms
#   rank 2 late, rank 1: 2 s, … Please check rank 0 logs for faulty rank.
#   rank 2 late, rank 2: 10 s, … Connection closed by peer
#   rank 0 late, rank 1: 8 s, … Please check rank 0 logs for faulty rank.
#   rank 0 late, rank 2: 8 s, … Please check rank 0 logs for faulty rank.
#   rank 0 late, rank 0: 10 s, … Connection closed by peer
# Exit status: 0 while torch behaves like this, 1 when it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder OMP_NUM_THREADS=1
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0
cat > "$folder/show.py" <<'PYTHON'
import os
import sys
import time
from datetime import timedelta
from multiprocessing import get_context

import torch.distributed as dist

GROUP_S, BARRIER_S, LATE_S = 8, 2, 10
PHRASES = ["Rank 2 failed to pass monitoredBarrier", "check rank 0 logs for faulty rank", "Connection closed by peer"]


def pass_barrier(rank, late, store, answers):
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=3, timeout=timedelta(seconds=GROUP_S)
    )
    dist.barrier()  # all are connected
    if rank == late:
        time.sleep(LATE_S)
    start = time.monotonic()
    error = ""
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=BARRIER_S))
    except RuntimeError as raised:
        error = str(raised).partition("\n Original")[0].replace("\n", " ")
    waited = time.monotonic() - start + (LATE_S if rank == late else 0)
    answers.put((rank, waited, error))
    answers.close()
    answers.join_thread()
    os._exit(0)


def run(late, folder):
    context = get_context("fork")
    answers = context.Queue()
    arguments = (late, f"{folder}/store-{late}", answers)
    ranks = [context.Process(target=pass_barrier, args=(rank, *arguments)) for rank in range(3)]
    for rank in ranks:
        rank.start()
    found = {rank: (waited, error) for rank, waited, error in (answers.get(timeout=60) for _ in ranks)}
    for rank in ranks:
        rank.join()
    for rank, (waited, error) in sorted(found.items()):
        print(f"rank {late} late, rank {rank}: {waited:.0f} s, {error[:140]}", flush=True)
    return found


def is_near(seconds, expected):
    return expected - 0.5 <= seconds <= expected + 1.5


first, second = run(2, sys.argv[1]), run(0, sys.argv[1])
sys.exit(
    not (
        is_near(first[0][0], BARRIER_S)
        and PHRASES[0] in first[0][1]
        and all(is_near(second[rank][0], GROUP_S) and PHRASES[1] in second[rank][1] for rank in (1, 2))
        and PHRASES[2] in second[0][1]
    )
)
PYTHON
timeout 100 "$folder/venv/bin/python" "$folder/show.py" "$folder" 2> "$folder/log" || { cat "$folder/log" >&2; exit 1; }

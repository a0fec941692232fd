"""Stacks of ranks: equal ones once, the odd rank first, and only if all others agree."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pai_sdk._data.stacks.frames import Frame
from pai_sdk._data.stacks.grouping import group_stacks, odd_ranks
from pai_sdk._data.stacks.processes import ProcessStack, ThreadStack, parse_processes

TRAIN = "/ml/usercode/train.py"
TORCH = "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LIGHTNING = "/opt/conda/lib/python3.10/site-packages/lightning/fabric/loop.py"
LOADER = "/opt/conda/lib/python3.10/site-packages/torch/utils/data/dataloader.py"

Call = tuple[str, int] | tuple[str, int, str]


def process(rank: int, *calls: Call, **values: Any) -> ProcessStack:
    frames = tuple(Frame(call[0], call[2] if len(call) == 3 else TRAIN, call[1]) for call in calls)
    threads = (ThreadStack(1, "MainThread", frames),) if frames else ()
    default = {"instance": f"job-worker-{rank}", "kind": "rank", "state": "S"}
    return ProcessStack(pid=100 + rank, rank=rank, threads=threads, **{**default, **values})


MAIN: tuple[Call, ...] = (("<module>", 90), ("main", 80))
STEP: tuple[Call, ...] = (*MAIN, ("step", 50))
# The root of a hand-written star waits on another line than its leaves.
ROOT: tuple[Call, ...] = (*STEP, ("all_reduce", 20), ("receive", 9))
LEAF: tuple[Call, ...] = (*STEP, ("all_reduce", 27), ("receive", 9))
LOAD: tuple[Call, ...] = (*MAIN, ("step", 48), ("load_data", 33))


def test_the_rank_that_is_in_no_collective_is_odd() -> None:
    ranks = [process(0, *ROOT), process(1, *LEAF), process(2, *LOAD), process(3, *LEAF)]
    assert odd_ranks(ranks) == (2,)
    odd, others = group_stacks(reversed(ranks))
    assert (odd.ranks, odd.is_odd, odd.user_frame) == ((2,), True, Frame("load_data", TRAIN, 33))
    assert (others.ranks, others.is_odd, others.is_in_collective) == ((0, 1, 3), False, True)
    assert others.user_frame == Frame("step", TRAIN, 50)


def test_nobody_is_odd_while_all_wait_in_one_collective() -> None:
    assert odd_ranks([process(0, *ROOT), process(1, *LEAF), process(2, *LEAF)]) == ()
    assert len(group_stacks([process(0, *ROOT), process(1, *LEAF)])) == 1


def exchange(rank: int) -> ProcessStack:
    """A collective operation whose name says nothing."""
    return process(rank, *STEP, ("exchange", 20 if rank == 0 else 27), ("receive", 9))


def test_without_a_known_name_the_first_common_caller_decides() -> None:
    assert odd_ranks([exchange(0), exchange(1), process(2, *LOAD), exchange(3)]) == (2,)
    assert odd_ranks([exchange(rank) for rank in range(4)]) == ()


def test_of_two_ranks_the_one_outside_the_collective_is_odd() -> None:
    assert odd_ranks([process(0, *ROOT), process(1, *LOAD)]) == (1,)
    assert odd_ranks([process(0, *MAIN, ("evaluate", 5)), process(1, *LOAD)]) == ()
    assert odd_ranks([process(0, *LOAD)]) == ()


def test_a_rank_that_skipped_a_collective_is_odd_at_the_end() -> None:
    finish = (*MAIN, ("finish", 70), ("receive", 9))
    assert odd_ranks([process(0, *ROOT), process(1, *LEAF), process(2, *finish), process(3, *LEAF)]) == (2,)
    # Also where that waits in another collective.
    barrier = (*MAIN, ("finish", 70), ("barrier", 9))
    assert odd_ranks([process(0, *ROOT), process(1, *LEAF), process(2, *barrier), process(3, *LEAF)]) == (2,)


def test_collectives_of_libraries_are_known() -> None:
    reduce: tuple[Call, ...] = (*STEP, ("all_reduce", 2501, TORCH))
    fit: tuple[Call, ...] = (*MAIN, ("fit", 8, LIGHTNING))
    ranks = [process(rank, *reduce) for rank in range(63)]
    assert odd_ranks([*ranks, process(63, *STEP, ("_next_data", 600, LOADER))]) == (63,)
    # No frame of the user tells them apart.
    waiting = [process(rank, *fit, ("barrier", 70 + rank, TORCH)) for rank in range(3)]
    stuck = process(3, *fit, ("_next_data", 600, LOADER))
    assert odd_ranks([*waiting, stuck]) == (3,)
    assert stuck.user_frame == Frame("main", TRAIN, 80)


def test_a_launcher_is_no_collective() -> None:
    assert not Frame("run", TORCH.replace("distributed_c10d", "run")).is_collective
    assert not Frame("main", "/x/site-packages/torch/distributed/elastic/agent/server/api.py").is_collective
    # It wraps the forward pass.
    assert not Frame("forward", "/x/site-packages/torch/nn/parallel/distributed.py").is_collective
    assert not Frame("forward", "/x/site-packages/torch/distributed/fsdp/api.py").is_collective
    assert Frame("synchronize", "/x/site-packages/torch/cuda/__init__.py").is_collective
    assert not Frame("broadcast_training", TRAIN).is_collective
    assert Frame("Ring.all_reduce", TRAIN).is_collective


def test_several_odd_ranks_and_ranks_that_all_differ() -> None:
    waiting = [process(rank, *LEAF) for rank in range(6)]
    assert odd_ranks([*waiting, process(6, *LOAD), process(7, *LOAD)]) == (6, 7)
    assert odd_ranks([process(rank, *MAIN, ("f", rank)) for rank in range(4)]) == ()
    # Three compute, and one is early.
    assert odd_ranks([process(0, *LEAF), *(process(rank, *LOAD) for rank in (1, 2, 3))]) == ()


def test_a_stopped_process_is_odd_whatever_its_stack() -> None:
    ranks = [process(0, *ROOT), process(1, *LEAF, state="T"), process(2, *LEAF)]
    assert odd_ranks(ranks) == (1,)
    assert [group.ranks for group in group_stacks(ranks)] == [(1,), (0, 2)]


def test_a_rank_in_a_debugger_is_shown_first_and_is_not_odd() -> None:
    debugger = "/ml/input/data/pai_sdk/pai_sdk/_data/run/report/debugger.py"
    ranks = [process(0, *ROOT), process(1, *LOAD, ("wait_for_debugger", 9, debugger)), process(2, *LEAF)]
    assert odd_ranks(ranks) == ()
    first = group_stacks(ranks)[0]
    assert (first.ranks, first.is_in_debugger, first.is_odd) == ((1,), True, False)
    assert first.user_frame == Frame("load_data", TRAIN, 33)


def test_ranks_are_compared_within_their_role() -> None:
    server = [process(rank, ("<module>", 3), instance=f"job-ps-{rank}") for rank in (4, 5)]
    workers = [process(0, *ROOT), process(1, *LEAF)]
    assert odd_ranks([*workers, *server]) == ()
    assert len(group_stacks([*workers, *server])) == 2


def test_a_rank_whose_stack_could_not_be_read_is_not_odd() -> None:
    ranks = [process(0, *ROOT), process(1, *LEAF), process(2, problem="it moves too fast")]
    assert odd_ranks(ranks) == ()
    assert odd_ranks([*ranks, process(3, *LOAD)]) == (3,)


def test_programs_without_a_python_stack_are_compared_by_what_they_wait_for() -> None:
    ranks = [process(rank, program="train", syscall="recvfrom") for rank in (0, 1, 2)]
    assert odd_ranks([*ranks, process(3, program="train", syscall="futex", wchan="futex_wait_queue")]) == (3,)


@pytest.mark.parametrize("content", [{}, {"processes": None}, {"processes": [3, {"pid": "x"}]}])
def test_invalid_responses_are_no_processes(content: dict[str, Any]) -> None:
    assert parse_processes(content) == []


def test_processes_survive_json() -> None:
    ranks = [process(0, *ROOT, cpu_percent=3.0), process(1, is_moving=True, problem="refused")]
    content = json.loads(json.dumps({"processes": [each.to_dict() for each in ranks]}))
    assert parse_processes(content) == ranks
    assert parse_processes({"processes": [{"pid": 1, "threads": [{"frames": [{"line": "x"}]}, 4]}]})[0].frames == (
        Frame("?"),
    )


def test_the_signature_of_a_process_that_moves_changes() -> None:
    assert process(0, *ROOT).signature == process(0, *ROOT, cpu_s=4.0).signature
    assert process(0, *ROOT).signature != process(0, *LEAF).signature

"""Healthy jobs that look like hanging ones, and hanging ones, as recorded signals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.support.recorded_signals import (
    ALL_REDUCE,
    BARRIER,
    EVALUATE,
    LOAD,
    SLEEP,
    SPINS,
    STEP,
    WAITS,
    Recording,
    State,
    recording,
    stack_of,
)

Job = Callable[[int], Recording]


def plain_steps(seed: int) -> Recording:
    """Steps of a second, printed now and then."""
    r = recording(seed)
    r.spend(r.rng.uniform(5, 120))
    r.train(600, r.rng.uniform(0.3, 3))
    return r


def evaluation_on_rank_0(seed: int) -> Recording:
    """Rank 0 evaluates for up to 90 minutes without a line; the others wait, asleep or spinning."""
    r = recording(seed)
    r.train(300, 1.0)
    waits = r.rng.choice([WAITS, SPINS])
    for _ in range(2):
        r.spend(r.rng.uniform(60, 5400), waits, r0=State(r.rng.uniform(0.3, 8), stack=EVALUATE))
        r.train(200, 1.0)
    return r


def evaluation_everywhere(seed: int) -> Recording:
    """All ranks evaluate without a line."""
    r = recording(seed)
    r.train(300, 0.5)
    r.spend(r.rng.uniform(60, 5400), State(r.rng.uniform(0.2, 4), stack=EVALUATE))
    r.train(100, 0.5)
    return r


def slow_checkpoint(seed: int) -> Recording:
    """Rank 0 writes to slow storage: no CPU, but bytes or uninterruptible I/O."""
    r = recording(seed)
    writes = State(0.01, io_bytes_per_s=r.rng.uniform(1e5, 5e6), stack=stack_of("save"))
    blocked = replace(writes, io_bytes_per_s=0.0, is_blocked=True)
    for _ in range(3):
        r.train(150, 1.0)
        r.spend(r.rng.uniform(60, 2400), WAITS, r0=r.rng.choice([writes, blocked]))
    r.train(50, 1.0)
    return r


def long_first_step(seed: int) -> Recording:
    """Compiles or downloads before the first metric; a download needs no CPU."""
    r = recording(seed)
    r.print("loading the model")
    cores = r.rng.choice([0.0, 1.0, 16.0])
    r.spend(r.rng.uniform(300, 3500), State(cores, stack=stack_of("compile")))
    r.train(300, 2.0)
    return r


def progress_bar(seed: int) -> Recording:
    """A progress bar without a newline, for an epoch of hours; the metric comes at its end."""
    r = recording(seed, 1)
    for _ in range(2):
        for state in range(r.rng.randint(100, 300)):
            r.spend(r.rng.uniform(5, 20))
            r.print(f"\r{state}/300", ends_line=False)
        r.step += 1
        r.metric(1.0)
    return r


def buffered_log(seed: int) -> Recording:
    """Python without -u: lines come in blocks of 8 KiB; metrics are parsed from them."""
    r = recording(seed, 1)
    block_s = r.rng.uniform(60, 600)
    for _ in range(20):
        r.spend(block_s * r.rng.uniform(0.7, 1.5))
        for _ in range(40):
            r.step += 1
            r.print(f"step {r.step} loss=0.5")
            r.metric(0.5)
    return r


def rare_lines(seed: int) -> Recording:
    """A line and a metric every 1,000 steps."""
    r = recording(seed)
    r.train(20, 1.0, metric_every=1)
    r.train(12_000, r.rng.uniform(0.05, 0.6), print_every=1000, metric_every=1000, state=State(0.9))
    return r


def idle_chief(seed: int) -> Recording:
    """The chief only sleeps, and the workers train."""
    r = recording(seed, 3)
    sleeps = State(0.0, stack=SLEEP, is_placeholder=True)
    for _ in range(300):
        r.spend(2.0, State(), r0=sleeps)
        r.step += 1
        r.metric(1.0, rank=1)
    return r


def only_sleeps(seed: int) -> Recording:
    """A job to work in: `sleep infinity`."""
    r = recording(seed, 1)
    r.spend(12 * 3600, State(0.0, stack=SLEEP, is_placeholder=True))
    return r


def breakpoint_waits(seed: int) -> Recording:
    """A breakpoint holds rank 1 for an hour, and the others wait."""
    r = recording(seed)
    r.train(200, 1.0)
    r.spend(3600, WAITS, r1=State(0.0, is_debugged=True))
    r.train(100, 1.0)
    return r


def paused_machine(seed: int) -> Recording:
    """The machine is suspended, and the watcher with it: the clock jumps."""
    r = recording(seed)
    r.train(200, 1.0)
    start = r.now_s
    r.spend(r.rng.uniform(600, 20_000), State(0.0))
    r.pauses.append((start, r.now_s))
    r.train(200, 1.0)
    return r


def license_server(seed: int) -> Recording:
    """Waits for a license or a lock before its first step, and repeats a message."""
    r = recording(seed, 1)
    for attempt in range(r.rng.randint(5, 50)):
        r.print(f"license not available, retrying in 30 s (attempt {attempt})")
        r.spend(30, State(0.0))
    r.train(300, 1.0)
    return r


def growing_steps(seed: int) -> Recording:
    """Longer sequences: steps become slower, by and by; all ranks alike."""
    r = recording(seed)
    for factor in range(1, 12):
        r.train(40, 0.5 * factor)
    return r


def mixed_precision(seed: int) -> Recording:
    """Norms of gradients overflow in the first steps; a best value is infinite until the first evaluation."""
    r = recording(seed, 2)
    for _ in range(r.rng.randint(3, 15)):
        r.spend(1)
        r.step += 1
        r.metric(float("inf"), "grad_norm")
        r.metric(float("inf"), "best_loss")
        r.metric(r.rng.uniform(6, 8))
    r.train(400, 1.0)
    for _ in range(5):  # a single bad batch
        r.step += 1
        r.spend(1)
        r.metric(r.rng.uniform(20, 60))
        r.train(60, 1.0)
    return r


HEALTHY: dict[str, Job] = {
    job.__name__: job
    for job in (
        plain_steps,
        evaluation_on_rank_0,
        evaluation_everywhere,
        slow_checkpoint,
        long_first_step,
        progress_bar,
        buffered_log,
        rare_lines,
        idle_chief,
        only_sleeps,
        breakpoint_waits,
        paused_machine,
        license_server,
        growing_steps,
        mixed_precision,
    )
}


# ---- faults: the recording, and the rank that causes it --------------------------------------------------------

_HANG_S = 4000.0


def _trained(seed: int, ranks: int = 4) -> Recording:
    r = recording(seed, ranks)
    r.spend(r.rng.uniform(5, 60))
    r.train(r.rng.randint(150, 400), r.rng.uniform(0.5, 4))
    return r


def stuck_loader(seed: int) -> Recording:
    """Rank 2 waits for its data; the others in a collective, asleep or spinning."""
    r = _trained(seed)
    r.hang(_HANG_S, r.rng.choice([WAITS, SPINS]), r2=State(0.0, stack=LOAD))
    return r


def skipped_collective(seed: int) -> Recording:
    """Rank 2 is a step ahead, in another collective, for ever."""
    r = _trained(seed)
    r.hang(_HANG_S, r.rng.choice([WAITS, SPINS]), r2=State(r.rng.choice([0.0, 1.0]), stack=BARRIER))
    return r


def deadlocked_lock(seed: int) -> Recording:
    """A single process waits for its own lock."""
    r = _trained(seed, 1)
    r.hang(_HANG_S, State(0.0, stack=stack_of("acquire")))
    return r


def endless_retry(seed: int) -> Recording:
    """Rank 2 tries to reach a server again and again, and says so."""
    r = _trained(seed)
    r.hang(0.0)
    for attempt in range(400):
        r.print(f"connection refused, retrying in 10 s (attempt {attempt})", 2)
        r.spend(10, WAITS, r2=State(0.001, stack=stack_of("connect_again")))
    return r


def stopped_process(seed: int) -> Recording:
    """Rank 2 is stopped by SIGSTOP."""
    r = _trained(seed)
    r.hang(_HANG_S, WAITS, r2=State(0.0, stack=STEP, is_stopped=True))
    return r


def slow_rank(seed: int) -> Recording:
    """Rank 2 becomes ten times as slow, and the others wait for it."""
    r = _trained(seed)
    r.fault_at_s = r.now_s
    step_s = 40.0
    for _ in range(40):
        r.spend(step_s, State(0.02, stack=ALL_REDUCE), r2=State(0.02, stack=stack_of("throttled")))
        r.step += 1
        r.metric(1.0)
    return r


def nan_loss(seed: int) -> Recording:
    """The loss of rank 2 becomes NaN."""
    r = _trained(seed)
    r.fault_at_s = r.now_s
    for _ in range(50):
        r.spend(2)
        r.step += 1
        r.metric(float("nan"), rank=2)
    return r


def full_disk(seed: int) -> Recording:
    """The disk fills up."""
    r = _trained(seed, 1)
    r.disk_free = 1 << 30
    r.fault_at_s = 0.0
    return r


FAULTS: dict[str, tuple[Job, str, str | None]] = {
    "stuck_loader": (stuck_loader, "OddRank", "worker-2"),
    "skipped_collective": (skipped_collective, "OddRank", "worker-2"),
    "deadlocked_lock": (deadlocked_lock, "NoProgress", "worker-0"),
    "endless_retry": (endless_retry, "OddRank", "worker-2"),
    "stopped_process": (stopped_process, "ProcessStopped", "worker-2"),
    "slow_rank": (slow_rank, "OddRank", "worker-2"),
    "nan_loss": (nan_loss, "NonFiniteMetric", "worker-2"),
    "full_disk": (full_disk, "DiskNearlyFull", None),
}

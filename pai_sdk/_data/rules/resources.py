"""The rules about resources and time: `IdleGpu`, `IdleCpu`, `DiskNearlyFull` and `LateEnd`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pai_sdk._data.rules.rules import DiskNearlyFull, IdleCpu, IdleGpu, LateEnd, Rule
from pai_sdk._data.rules.signals import BUSY_BYTES_PER_S, Condition, Sample

_GIB = 1 << 30
_MIN_FRACTION = 0.05
_LATE_SAMPLES = 3


@dataclass
class ResourceRules:
    """Follows how long a job is idle, its disk, and its expected end."""

    rules: Mapping[str, Rule]
    idle_gpu_s: float = 0.0
    idle_cpu_s: float = 0.0
    late_samples: int = 0
    is_nearly_full: bool = False

    def observe(self, sample: Sample, observed_s: float) -> None:
        """Adds a sample."""
        active = [i for i in sample.instances.values() if not i.is_placeholder and not i.has_ended]
        gpu, cpu = self.rules.get(IdleGpu.code), self.rules.get(IdleCpu.code)
        gpus = [i.gpu_percent for i in active if i.gpu_percent is not None]
        is_idle = isinstance(gpu, IdleGpu) and bool(gpus) and max(gpus) < gpu.percent
        self.idle_gpu_s = self.idle_gpu_s + observed_s if is_idle else 0.0
        is_idle = (
            isinstance(cpu, IdleCpu)
            and bool(active)
            and all(
                i.cores is not None
                and 100 * i.cores < cpu.percent
                and (i.io_bytes_per_s or 0.0) < BUSY_BYTES_PER_S
                for i in active
            )
        )
        is_paused = any(i.is_debugged or i.is_stopped for i in active)
        self.idle_cpu_s = self.idle_cpu_s + observed_s if is_idle and not is_paused else 0.0
        self._observe_disk(sample)
        late = self.rules.get(LateEnd.code)
        is_late = isinstance(late, LateEnd) and bool(_late_reason(late, sample))
        self.late_samples = self.late_samples + 1 if is_late else 0

    def _observe_disk(self, sample: Sample) -> None:
        rule = self.rules.get(DiskNearlyFull.code)
        if not isinstance(rule, DiskNearlyFull) or sample.disk_free is None or not sample.disk_total:
            return
        # A margin in both directions, or a job near the limit would raise and clear it again and again.
        margin = 1.1 if self.is_nearly_full else 1.0
        limit = min((1 - rule.percent / 100) * sample.disk_total, rule.free_gib * _GIB)
        self.is_nearly_full = sample.disk_free <= limit * margin

    def conditions(self, sample: Sample) -> Iterator[Condition]:
        """Yields what the rules observe now."""
        gpu, cpu, late = (self.rules.get(code) for code in (IdleGpu.code, IdleCpu.code, LateEnd.code))
        if isinstance(gpu, IdleGpu) and self.idle_gpu_s >= 60 * gpu.minutes:
            message = f"all GPUs are used less than {gpu.percent:g} % for {self.idle_gpu_s / 60:.0f} min"
            yield Condition(gpu.code, message, evidence={"idle_s": round(self.idle_gpu_s)})
        if isinstance(cpu, IdleCpu) and self.idle_cpu_s >= 60 * cpu.minutes:
            message = f"no instance uses CPU or disk for {self.idle_cpu_s / 60:.0f} min"
            yield Condition(cpu.code, message, evidence={"idle_s": round(self.idle_cpu_s)})
        if self.is_nearly_full and sample.disk_free is not None and sample.disk_total:
            percent = 100 * (1 - sample.disk_free / sample.disk_total)
            message = f"the disk is {percent:.0f} % full; {sample.disk_free / _GIB:.1f} GiB are free"
            yield Condition(DiskNearlyFull.code, message, evidence={"free_bytes": sample.disk_free})
        if isinstance(late, LateEnd) and self.late_samples >= _LATE_SAMPLES:
            yield Condition(late.code, _late_reason(late, sample), evidence={"end_s": _end_s(sample)})

    def to_json(self) -> dict[str, Any]:
        """Returns the state as JSON."""
        return {
            "idle_gpu_s": self.idle_gpu_s,
            "idle_cpu_s": self.idle_cpu_s,
            "late_samples": self.late_samples,
            "is_nearly_full": self.is_nearly_full,
        }


def _end_s(sample: Sample) -> float | None:
    """Returns the expected run time of the job."""
    if sample.elapsed_s is None:
        return None
    if sample.remaining_s is not None:
        return sample.elapsed_s + sample.remaining_s
    if sample.fraction is None or not _MIN_FRACTION <= sample.fraction <= 1:
        return None
    return sample.elapsed_s / sample.fraction


def _late_reason(rule: LateEnd, sample: Sample) -> str:
    """Returns why the end is too late; empty if it is not."""
    end_s = _end_s(sample)
    if end_s is None:
        return ""
    if sample.max_run_s and end_s > rule.factor * sample.max_run_s:
        limit = f"max_run_time is {sample.max_run_s / 3600:.1f} h"
        return f"the job needs {end_s / 3600:.1f} h by its progress, and {limit}"
    if rule.budget is not None and rule.price_per_hour is not None:
        cost = rule.price_per_hour * end_s / 3600
        if cost > rule.factor * rule.budget:
            return f"the job will cost {cost:.2f} by its progress, and its budget is {rule.budget:.2f}"
    return ""

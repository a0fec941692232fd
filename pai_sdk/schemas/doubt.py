"""The doubt about a submission: whether a create request without an answer has made a job."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field


@dataclass
class Doubt:
    """The creates of one submission that may have arrived although no answer came.

    It lives as long as the plan: when the same plan is submitted again, the earlier job is looked for first.

    Attributes:
        creates: how many there are.
        since_s: Monotonic time in seconds at which the last of them was given up.
        away_s: how long the last of them had been under way, in seconds.
        label: the label of the submission, for a request that has none of its own.
    """

    creates: int = 0
    since_s: float = 0.0
    away_s: float = 0.0
    label: str = field(default_factory=lambda: uuid.uuid4().hex)

    def add(self, *, begun_s: float, now_s: float) -> None:
        """Note a create that was given up now."""
        self.creates += 1
        self.since_s, self.away_s = now_s, now_s - begun_s

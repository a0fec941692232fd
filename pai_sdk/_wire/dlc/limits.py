"""Limits of the API of DLC. Where sources disagree, the smaller limit. Standard library only."""

from __future__ import annotations

from typing import Final

MAX_BODY_BYTES: Final = 65_536
"""Of all parameters of CreateJob together, those included that the service adds."""

MAX_NAME: Final = 256
"""Characters of a DisplayName."""

MAX_ENVS: Final = 20
"""Variables of a job in the console; no limit of the API is documented."""

MAX_TAGS: Final = 20
MAX_TAG_KEY: Final = 128
MAX_TAGGED: Final = 50
"""Resources in one TagResources."""

PRIORITIES: Final = range(1, 10)
PAGE_SIZES: Final = range(1, 101)
PAGE_NUMBERS: Final = range(1, 1001)
DEFAULT_PAGE_SIZE: Final = 10
"""Of our service; the cloud's is not documented, so clients always send one."""

DEFAULT_MAX_LINES: Final = 2_000
EVENT_COUNTS: Final = range(1, 10_001)
DEFAULT_MAX_EVENTS: Final = 2_000
DEFAULT_WINDOW_S: Final = 7 * 24 * 3600
"""ListJobs, logs and events without a StartTime reach so far back."""

DEFAULT_TOKEN_S: Final = 604_800
METRICS_WINDOW_S: Final = 3600
MIN_POLL_S: Final = 5.0
"""Pause between two reads of a log or a status: the cloud limits the rate of calls."""

"""The times at the beginning of log lines, as logging, glog, torch and their like write them."""

from __future__ import annotations

import re

# Only the time of day: with a time that is known to some seconds, neither the date nor the time zone is needed.
_STAMP = re.compile(
    rb"(?:\[[\w.-]{1,20}\]: ?)?(?:[A-Z]+:? )?[\[({]{0,2}(?:\"\w{1,12}\": ?\")?"
    rb"(?:\d{4}[-/]\d\d[-/]\d\d[T ]|\d\d-\d\d |[CDEFIW]\d{4} )?"
    rb"\d\d:(?P<minutes>\d\d):(?P<seconds>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
)
_ZONE_S = 900  # zones differ by multiples of 15 minutes
_MAX_DIFFERENCE_S = 5.0  # a line is recorded about a second after it was written; more if it waited in a buffer


def stamp_of(line: bytes, recorded_at: float) -> float | None:
    """Returns the time at the beginning of a line, near the time at which it was recorded; None without one."""
    match = _STAMP.match(line)
    if match is None:
        return None
    fraction = float(b"0." + match["fraction"]) if match["fraction"] else None
    written = int(match["minutes"]) % 15 * 60 + int(match["seconds"]) + (fraction or 0.0)
    difference = (written - recorded_at + _ZONE_S / 2) % _ZONE_S - _ZONE_S / 2
    if fraction is None and -1.0 < difference <= 0.0:
        return recorded_at  # within the second that the line has
    # Otherwise it is not a time of day, as in `00:12:33 remaining`.
    return recorded_at + difference if abs(difference) <= _MAX_DIFFERENCE_S else None

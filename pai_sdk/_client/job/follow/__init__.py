"""Following jobs: logs as a stream, and one poller for all jobs that are waited for."""

from pai_sdk._client.job.follow.follower import (
    PAGE_LINES,
    Follower,
    FollowPolicy,
    LogError,
    Update,
)

__all__ = [
    "PAGE_LINES",
    "FollowPolicy",
    "Follower",
    "LogError",
    "Update",
]

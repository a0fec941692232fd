"""Following jobs: logs as a stream, and one poller for all jobs that are waited for."""

from pai_sdk._client.job.follow.follower import Follower, LogError, Update
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.read_pace import PAGE_LINES

__all__ = [
    "PAGE_LINES",
    "FollowPolicy",
    "Follower",
    "LogError",
    "Update",
]

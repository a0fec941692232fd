"""Jobs in Docker on this machine: `instance_type="local"`."""

from pai_sdk._client.backend.local.backend import LocalBackend

__all__ = ["LocalBackend"]

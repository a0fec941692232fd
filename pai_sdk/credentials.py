"""Keys, and where they come from: the public names of `pai_sdk._core.config.credentials`."""

from pai_sdk._core.config.credentials import (
    Credentials,
    CredentialsProvider,
    default_credentials,
    provider_of,
    static_credentials,
)

__all__ = ["Credentials", "CredentialsProvider", "default_credentials", "provider_of", "static_credentials"]

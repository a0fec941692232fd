"""The client of Alibaba Cloud OSS and of services that speak its protocol."""

from pai_sdk._core.names.lazy_names import lazy_names

# The client imports oss2; modules beside it do not.
__all__, __getattr__, __dir__ = lazy_names(__name__)

"""alipai's import path for `python -m pai_sdk.toolkit.config`."""

"""alipai's import paths for helpers: `pai_sdk.common.oss_utils` and `pai_sdk.common.utils`."""

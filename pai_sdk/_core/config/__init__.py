"""Settings and credentials."""

from pai_sdk._core.config.settings import Settings, load_settings, save_config

__all__ = ["Settings", "load_settings", "save_config"]

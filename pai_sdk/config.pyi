from pai_sdk._core.config import Settings as Settings
from pai_sdk._core.config import load_settings as load_settings
from pai_sdk._core.config import save_config as save_config

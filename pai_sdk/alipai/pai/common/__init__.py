"""alipai's import paths for helpers: `oss_utils`, `utils`, `consts`, `logging`."""

ProviderAlibabaPAI = "pai"

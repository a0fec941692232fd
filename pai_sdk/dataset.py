"""alipai's list of public data sets: left out. Names can be imported, and their use names the replacement."""

from pai_sdk.compat.left_out import module_left_out

__path__, __getattr__ = module_left_out(__name__)

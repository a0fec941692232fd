"""alipai's constants, under the path that code written for it imports: the names of `pai_sdk.alipai.constants`."""

from pai_sdk.alipai.constants import *  # noqa: F403
from pai_sdk.alipai.constants import __all__ as __all__

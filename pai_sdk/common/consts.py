"""alipai's constants, under the path that code written for it imports: the names of `pai_sdk.compat.constants`."""

from pai_sdk.compat.constants import *  # noqa: F403
from pai_sdk.compat.constants import __all__ as __all__

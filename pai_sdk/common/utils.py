"""alipai's helpers, under the path that code written for it imports: the names of `pai_sdk.compat.helpers`."""

from pai_sdk.compat.helpers import *  # noqa: F403
from pai_sdk.compat.helpers import __all__ as __all__
from pai_sdk.compat.left_out import unsupported_module

__path__, __getattr__ = unsupported_module(__name__)

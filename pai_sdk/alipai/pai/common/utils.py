"""alipai's helpers, under the path that code written for it imports: the names of `pai_sdk.alipai.helpers`."""

from pai_sdk.alipai.helpers import *  # noqa: F403
from pai_sdk.alipai.helpers import __all__ as __all__
from pai_sdk.alipai.unsupported import unsupported_module

__path__, __getattr__ = unsupported_module(__name__)

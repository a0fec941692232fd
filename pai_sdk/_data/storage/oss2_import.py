"""oss2 without its own warnings: import it from here, or `python -W error` cannot import it at all.

Loading it takes half a second: import this module inside the function that needs it.
"""

import warnings

__all__ = ["oss2"]

# Compiling oss2 2.19 gives warnings: invalid escapes in its strings.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import oss2
    import oss2.credentials
    import oss2.exceptions
    import oss2.models
    import oss2.utils

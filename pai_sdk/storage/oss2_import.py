"""oss2 without its own warnings: import it from here, or `python -W error` cannot import it at all.

Loading it takes half a second: import this module inside the function that needs it.
"""

import re
import warnings

__all__ = ["ignore_utcnow", "oss2"]

# Compiling oss2 2.19 gives warnings: invalid escapes in its strings.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import oss2
    import oss2.credentials
    import oss2.exceptions
    import oss2.models
    import oss2.utils

_MESSAGE, _MODULE = "datetime.*utcnow", r"oss2\.auth"
_FILTER = ("ignore", re.compile(_MESSAGE, re.IGNORECASE), DeprecationWarning, re.compile(_MODULE), 0)


def ignore_utcnow() -> None:
    """Let oss2 sign where warnings are errors: it uses a function that Python 3.12 deprecates.

    Filters belong to the process, and the first one that matches is used: call it before each request.
    """
    if warnings.filters[:1] != [_FILTER]:
        warnings.filterwarnings("ignore", _MESSAGE, DeprecationWarning, _MODULE)

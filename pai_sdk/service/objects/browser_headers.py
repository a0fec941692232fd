"""Headers of objects that a browser opens by a presigned URL: what it could run is downloaded instead."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pai_sdk.service.objects.oss_request import OssRequest

__all__ = ["safe_in_browser"]

# Types that a browser displays without running anything in them. Types that it does not display stay out: for
# those, an attachment is what it does anyway. PDF has scripts of its own.
_DISPLAYED = re.compile(
    r"(image/(png|jpeg|gif|webp|avif|bmp)|audio/[a-z0-9.-]+|video/[a-z0-9.-]+|text/plain|application/json)"
    r"( *; *charset=[A-Za-z0-9_-]+)?",
    re.IGNORECASE,
)


def safe_in_browser(request: OssRequest, headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers of an object with `content-disposition: attachment` where a browser could run it.

    Only requests that are signed in the query are changed: browsers cannot send the header `Authorization` of OSS
    when they open an address, so official clients with a key receive the headers as they were stored. Type and
    disposition count as the response has them: a `response-*` parameter is chosen by whoever made the URL.
    """
    found = dict(headers)
    if request.header("authorization") or _DISPLAYED.fullmatch(found.get("content-type", "").strip()):
        return found
    kind, separator, parameters = found.get("content-disposition", "").partition(";")
    if kind.strip().lower() != "attachment":
        found["content-disposition"] = f"attachment{separator}{parameters}"
        found["x-oss-force-download"] = "true"  # as OSS marks it
    return found

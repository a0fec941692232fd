"""The PAI-style service: the API of Alibaba Cloud PAI, on a machine of your own."""

import sys

from pai_sdk.errors import ServiceStartError

if sys.platform == "win32":
    raise ServiceStartError(
        "the service does not run on Windows; start it in WSL or on a Linux machine,"
        " and give a Session its address as endpoint and oss_endpoint"
    )

# The names of the package, each with its home; `pai_sdk.base.lazy_names` reads this file, and type checkers do.

from pai_sdk.storage.oss.client import OssClient as OssClient

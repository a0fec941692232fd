# The names of the package, each with its home; `pai_sdk._core.names.lazy_names` reads this file, and type checkers do.

from pai_sdk._data.storage.oss.client import OssClient as OssClient

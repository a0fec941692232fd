# The names of the package, each with its home. Read by type checkers and by `pai_sdk._core.names.lazy_names`.

from pai_sdk._data.storage.oss.client import OssClient as OssClient

# The names of the package, each with its home. Read by type checkers and by `pai_sdk._core.names.lazy_names`.

from pai_sdk._data.run.store.run_store import DbfsRunStore as DbfsRunStore
from pai_sdk._data.run.store.run_store import HdfsRunStore as HdfsRunStore
from pai_sdk._data.run.store.run_store import LocalRunStore as LocalRunStore
from pai_sdk._data.run.store.run_store import RemoteRunStore as RemoteRunStore
from pai_sdk._data.run.store.run_store import RunStore as RunStore

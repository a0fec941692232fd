from pai_sdk._service.embedded import ChosenExecutor as ChosenExecutor
from pai_sdk._service.embedded import ensure_running as ensure_running
from pai_sdk._service.embedded import find_running as find_running
from pai_sdk._service.embedded import stop_running as stop_running

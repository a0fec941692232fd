from pai_sdk._data.run.report.checkpoints import Checkpoint as Checkpoint
from pai_sdk._data.run.report.checkpoints import CheckpointConfig as CheckpointConfig
from pai_sdk._data.run.report.checkpoints import complete_checkpoints as complete_checkpoints
from pai_sdk._data.run.report.checkpoints import latest_checkpoint as latest_checkpoint
from pai_sdk._data.run.report.checkpoints import rotate as rotate

"""Processes data in an experiment, and meets a failure."""

import posixpath

from pai.common import ProviderAlibabaPAI
from pai.common.utils import camel_to_snake, is_iterable, name_from_base, random_str, snake_to_camel, timestamp
from pai.estimator import Estimator
from pai.exception import PAIException, UnexpectedStatusException
from pai.experiment import Experiment
from pai.job import Channel, ExperimentConfig, TrainingJobStatus
from pai.processor import Processor
from pai.session import get_default_session
from pai.tensorboard import TensorBoard, TensorBoardStatus

session = get_default_session()
assert snake_to_camel(camel_to_snake("TrainingJob")) == "TrainingJob"
assert is_iterable([]) and len(timestamp(sep="", utc=True)) == 17 and ProviderAlibabaPAI == "pai"

name = name_from_base("corpus") + random_str(4)
experiment = Experiment.create(f"oss://{session.oss_bucket_name}/experiments/", name)
processor = Processor(
    image_uri="python:3.11",
    command="echo rows=$PAI_HPS_ROWS > $PAI_OUTPUT_TABLE/rows.txt",
    source_dir="src",
    parameters={"rows": 3},
    base_job_name="corpus-process",
    instance_type="ecs.c6.large",
    experiment_config=ExperimentConfig(experiment_id=experiment.experiment_id),
)
processor.set_input_channels([Channel(name="raw", required=False, description="not used here")])
processor.set_output_channels([Channel(name="table", required=True)])
job = processor.run(wait=False)
processor.wait(interval=1, show_logs=False, all_jobs=True)
assert job.experiment_config.experiment_id == experiment.experiment_id
place = processor.get_outputs_data()["table"]
assert place.startswith(experiment.artifact_uri)
key = posixpath.join(place, "rows.txt").split("/", 3)[3]
assert session.oss_bucket.get_object(key).read() == b"rows=3\n"

experiment.update(name=f"{name}-2")
assert Experiment.get(experiment.experiment_id).name == f"{name}-2"
assert Experiment.get_by_name(f"{name}-2").experiment_id == experiment.experiment_id
assert [each.name for each in Experiment.list(name=name)] == [f"{name}-2"]

board = TensorBoard.create(experiment.tensorboard_data(), wait=True, display_name="corpus")
assert TensorBoardStatus.is_running(board.status)
assert board.app_uri and board.display_name == "corpus" and board.tensorboard_id and board.summary_uri
board.stop()
assert TensorBoardStatus.is_terminated(board.status) or board.status == TensorBoardStatus.Stopped
board.start(wait=True)
board.delete()

failing = Estimator("python:3.11", "exit 3", instance_type="ecs.c6.large")
try:
    failing.fit(show_logs=False)
except UnexpectedStatusException as error:
    assert isinstance(error, PAIException) and error.message
    assert error.status in TrainingJobStatus.failed_status()
assert failing.latest_job.status in TrainingJobStatus.completed_status()
experiment.delete()

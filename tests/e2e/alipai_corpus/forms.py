"""Calls by position and by name, values as plain dicts, and what a program reads and prints afterwards."""

from pai.common.oss_utils import OssUriObj, download, upload
from pai.estimator import AlgorithmEstimator, Estimator, FileSystemInput
from pai.exception import UnexpectedStatusException
from pai.experiment import Experiment
from pai.image import ImageScope, list_images, retrieve
from pai.job import (
    AlgorithmSpec,
    Channel,
    ExperimentConfig,
    HyperParameterDefinition,
    TrainingJob,
    TrainingJobStatus,
    UriInput,
)
from pai.job._training_job import DatasetConfig
from pai.processor import Processor
from pai.session import get_default_session

session = get_default_session()
bucket = session.oss_bucket

# ---- data: source, target and bucket by position
with open("rows.csv", "w") as rows:
    rows.write("1\n2\n")
uri = upload("rows.csv", "forms/", bucket)
assert uri == f"oss://{bucket.bucket_name}/forms/rows.csv"
assert download(uri, "copied/", bucket).endswith("rows.csv")
parts = OssUriObj(uri)
assert (parts.bucket_name, parts.object_key) == (bucket.bucket_name, "forms/rows.csv")
assert parts.get_dir_uri().endswith("/forms/") or parts.get_dir_uri().endswith("rows.csv/")

# ---- images: framework, version, accelerator, scope and session by position
image = retrieve("PyTorch", "latest", "CPU", ImageScope.TRAINING, session)
print(image)
assert image.framework_name == "PyTorch" and image.accelerator_type == "CPU"
assert [each for each in list_images("PyTorch", session) if each.image_uri == image.image_uri]

# ---- the six parameters of an estimator by position, the others by name
est = Estimator(
    "python:3.11",
    "test $PAI_HPS_LR = 0.5 && ls $PAI_INPUT_ROWS > $PAI_OUTPUT_MODEL/name.txt && echo loss=0.5",
    None,
    None,
    "PyTorchJob",
    {"lr": 0.1},
    instance_type="ecs.c6.large",
    base_job_name="forms",
    metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    labels={"part": "forms"},
    environments={"A": "b"},
    requirements=[],
)
est.set_hyperparameters(lr=0.5)
assert est.hyperparameters == {"lr": 0.5}
assert est.latest_job is None
print(est)

# ---- inputs, outputs, wait and show_logs by position
job = est.fit({"rows": uri}, {"extra": f"oss://{bucket.bucket_name}/forms/extra/"}, True, True)
print(job)
assert isinstance(job, TrainingJob) and job == est.latest_job and job in {est.latest_job}
assert job.id == job.training_job_id and str(job.status) == TrainingJobStatus.Succeed
assert job.output_path("extra") == f"oss://{bucket.bucket_name}/forms/extra/"
assert job.output_path(channel_name="model") == est.model_data()
name = download(est.model_data() + "name.txt", "got/", bucket)
with open(name) as text:
    assert text.read().strip().endswith("rows.csv")
assert est.wait(interval=1) == job
assert job.wait(interval=1, show_logs=False) is not False

# ---- the same estimator again: all of its jobs are waited for, and a table of them is printed
again = est.fit(inputs={"rows": uri}, wait=False)
assert again != job
est.wait(interval=1, show_logs=False, all_jobs=True)
assert again.is_succeeded()

# ---- found by id and session, and in a list of one page, by position
assert TrainingJob.get(job.id, session) == job
page = TrainingJob.list(TrainingJobStatus.Succeed, session, 50, 1)
assert isinstance(page, list) and {job, again} <= {*page}
assert all(each.status in TrainingJobStatus.completed_status() for each in page)

# ---- a processor, its parameters by position
processor = Processor("python:3.11", "echo $PAI_HPS_ROWS > $PAI_OUTPUT_OUT/n.txt", None, "PyTorchJob", {"rows": 3})
processor.instance_type = "ecs.c6.large"
processor.set_output_channels([Channel(name="out")])
done = processor.run({"rows": uri}, None, True, False)
assert done.is_completed() and processor.latest_job == done
assert sorted(processor.get_outputs_data()) == ["out"]

# ---- experiments: folder, name and session by position
experiment = Experiment.create(f"oss://{bucket.bucket_name}/forms/", "forms", session)
assert Experiment.get_by_name("forms", session).experiment_id == experiment.experiment_id
assert [each.name for each in Experiment.list("forms", session)] == ["forms"]
assert experiment.update("forms-2").name == "forms-2"
print(experiment, experiment.artifact_uri)
grouped = Estimator(
    "python:3.11",
    "true",
    instance_type="ecs.c6.large",
    experiment_config=ExperimentConfig(experiment_id=experiment.experiment_id),
)
assert grouped.fit(show_logs=False).experiment_config.experiment_id == experiment.experiment_id
experiment.delete()

# ---- an algorithm as a value: its definitions, defaults and channels
spec = AlgorithmSpec(
    image="python:3.11",
    command=["sh", "-c", "echo $PAI_HPS_N > $PAI_OUTPUT_MODEL/n.txt"],
    job_type="PyTorchJob",
    output_channels=[Channel(name="model", required=True)],
    hyperparameter_definitions=[HyperParameterDefinition(name="n", type="Int", default_value="1")],
)
algorithm = AlgorithmEstimator(None, None, None, spec, {"n": 2}, instance_type="ecs.c6.large")
algorithm.set_hyperparameters(n=3)
algorithm.fit(None, None, True, False)
with open(download(algorithm.get_outputs_data()["model"] + "n.txt", "n/", bucket)) as text:
    assert text.read() == "3\n"

# ---- what is only described: file systems and data sets as inputs
assert FileSystemInput("0a1b2c", "/data/").to_input_uri().startswith("nas://0a1b2c.")
assert DatasetConfig(dataset_id="d-1").dataset_id == "d-1"
assert UriInput(name="a", input_uri="oss://b/k/").to_dict() == {"Name": "a", "InputUri": "oss://b/k/"}

# ---- a failure, and what it says
failing = Estimator("python:3.11", "exit 3", instance_type="ecs.c6.large")
try:
    failing.fit({}, None, True, False)
except UnexpectedStatusException as error:
    print(error)
    assert (error.status, failing.latest_job.status) == ("Failed", "Failed")
    assert error.message and failing.latest_job.id in str(error)
    assert failing.latest_job.reason_code and failing.latest_job.reason_message

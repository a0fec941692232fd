"""Trains with an estimator, all names reached through `pai`."""

import logging
import os

import pai
import pai.common.oss_utils
import pai.estimator
import pai.image
import pai.job
import pai.session
from pai.common.logging import get_logger
from pai.version import VERSION

logger = get_logger(__name__)
logging.basicConfig(level=logging.INFO)
logger.info("version %s", pai.__version__)
assert VERSION == pai.__version__

session = pai.session.get_default_session()
assert isinstance(session, pai.session.Session)
assert not session.is_inner
assert session.console_uri.startswith("https://")
assert session.workspace_name
logger.info("%s %s %s", session.region_id, session.workspace_id, session.oss_endpoint)

# ---- data
with open("train.csv", "w") as csv:
    csv.write("1,2\n3,4\n5,6\n")
data = pai.common.oss_utils.upload(
    "train.csv", session.get_storage_path_by_category("train_data"), bucket=session.oss_bucket
)
assert pai.common.oss_utils.is_oss_uri(data)
parts = pai.common.oss_utils.OssUriObj(session.patch_oss_endpoint(data))
assert parts.bucket_name == session.oss_bucket_name
assert session.get_oss_bucket(parts.bucket_name).object_exists(parts.object_key)
same = pai.common.oss_utils.OssUriObj.from_bucket_key_endpoint(parts.bucket_name, parts.object_key, parts.endpoint)
assert same.uri == parts.uri == data
assert same.get_uri_with_endpoint() == session.patch_oss_endpoint(data)
assert (parts.role_arn, parts.parse(data)[0], parts.parse_object_key()[2]) == (
    None,
    parts.bucket_name,
    "train.csv",
)
folder = parts.get_dir_uri()

# ---- the job
image = pai.image.retrieve("pytorch", framework_version="latest", accelerator_type="CPU")
assert isinstance(image, pai.image.ImageInfo)
assert image.image_scope == pai.image.ImageScope.TRAINING
assert image.image_uri in [each.image_uri for each in pai.image.list_images("PyTorch", session=session)]
logger.info("%s %s %s %s", image.image_name, image.framework_name, image.accelerator_type, image.python_version)

est = pai.estimator.Estimator(
    image_uri=image.image_uri,
    command="python train.py $PAI_USER_ARGS",
    source_dir="src",
    job_type="PyTorchJob",
    hyperparameters={"lr": 0.5},
    environments={"OMP_NUM_THREADS": "1"},
    base_job_name="corpus-train",
    max_run_time=600,
    checkpoints_path=f"oss://{session.oss_bucket_name}/corpus/checkpoints/",
    output_path=f"oss://{session.oss_bucket_name}/corpus/output/",
    metric_definitions=[{"Name": "loss", "Regex": r"loss=([0-9.]+)"}],
    instance_type="ecs.c6.large",
    instance_count=1,
    labels={"team": "vision"},
    session=session,
)
est.set_hyperparameters(epochs=2)
assert est.training_image_uri() == image.image_uri
est.fit(inputs={"train": data}, outputs={"figures": folder + "figures/"}, wait=False, show_logs=False)
est.wait(interval=1, show_logs=True)

job = est.latest_job
assert job.is_completed() and job.is_succeeded()
assert job.status == pai.job.TrainingJobStatus.Succeed
assert job.compute_resource.ecs_spec == "ecs.c6.large"
assert job.algorithm_spec.image == image.image_uri
assert job.scheduler.max_running_time_in_seconds == 600
assert [(each.name, each.input_uri) for each in job.inputs] == [("train", data)]
assert (job.algorithm_name, job.algorithm_version, job.algorithm_provider) == (None, None, None)
assert job.to_dict()["TrainingJobId"] == job.model_dump()["TrainingJobId"] == job.training_job_id == job.id
assert job.hyperparameters == {"lr": "0.5", "epochs": "2"}
assert job.labels["team"] == "vision"
logger.info("%s %s %s", job.training_job_name, job.training_job_url, job.console_uri)
logger.info("%s %s %s", job.reason_code, job.reason_message, job.training_job_description)
assert job.workspace_id == session.workspace_id

# ---- found again, and its outputs
assert pai.job.TrainingJob.get(training_job_id=job.training_job_id).is_succeeded()
listed = pai.job.TrainingJob.list(session=session, page_size=1, page_number=1)
assert [each.training_job_id for each in listed] == [job.training_job_id]
assert est.model_data() == job.output_path("model") == job.outputs["model"]
assert est.checkpoints_data() == job.output_path("checkpoints")
assert est.tensorboard_data() == est.get_outputs_data()["tensorboard"]
pai.common.oss_utils.download(est.model_data(), "model/", bucket=session.oss_bucket)
with open(os.path.join("model", "model.txt")) as model:
    assert model.read() == "3 rows, 0.5"

"""A program as alipai's users write it; the test replaces `pai` by `pai_sdk` in its imports, and nothing else.

It prints one JSON object with what it has seen.
"""

from __future__ import annotations

import json
import posixpath
import sys
from pathlib import Path

from pai.common.oss_utils import OssUriObj, download, is_oss_uri, upload
from pai.common.utils import random_str
from pai.estimator import AlgorithmEstimator, Estimator, FileSystemInput, ResourceType, SpotSpec, UserVpcConfig
from pai.exception import UnexpectedStatusException
from pai.experiment import Experiment
from pai.image import ImageScope, list_images, retrieve
from pai.job import Channel, ExperimentConfig, TrainingJob, TrainingJobStatus
from pai.job._training_job import ExperimentConfig as SameConfig
from pai.model import InferenceSpec, container_serving_spec
from pai.processor import Processor
from pai.session import get_default_session, setup_default_session
from pai.tensorboard import TensorBoard, TensorBoardStatus

TRAIN = """
import json, os, pathlib
values = json.loads(pathlib.Path(os.environ["PAI_CONFIG_DIR"], "hyperparameters.json").read_text())
rows = pathlib.Path("/ml/input/data/train/train.csv").read_text().split()
pathlib.Path("/ml/output/model/model.json").write_text(json.dumps({"rows": len(rows), **values}))
pathlib.Path("/ml/output/checkpoints/last.txt").write_text("3")
pathlib.Path("/ml/output/figures/a.svg").write_text("<svg/>")
print("loss=0.25")
"""


def here() -> dict[str, str]:
    return {"instance_type": "ecs.c6.large", "image_uri": retrieve("PyTorch").image_uri}


def exists(uri: str) -> bool:
    parts = OssUriObj(uri)
    return get_default_session().get_oss_bucket(parts.bucket_name).object_exists(parts.object_key)


def estimators(folder: Path, seen: dict) -> None:
    """One that trains, with outputs of its own; the job found again; one that fails."""
    bucket = get_default_session().oss_bucket
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text(TRAIN)
    (folder / "train.csv").write_text("1\n2\n3\n")
    train = upload(str(folder / "train.csv"), oss_path="data/train/", bucket=bucket)
    figures = f"oss://{bucket.bucket_name}/figures/{random_str(6)}/"
    estimator = Estimator(
        command="python train.py",
        source_dir=str(folder / "src"),
        hyperparameters={"n_estimators": 50},
        metric_definitions=[{"Name": "loss", "Regex": r"loss=([0-9.]+)"}],
        checkpoints_path=f"oss://{bucket.bucket_name}/checkpoints/{random_str(6)}/",
        base_job_name="digits_",
        max_run_time=600,
        **here(),
    )
    estimator.set_hyperparameters(max_depth=5)
    estimator.fit(inputs={"train": posixpath.dirname(train)}, outputs={"figures": figures}, wait=False)
    job = estimator.wait(interval=1)
    board = estimator.tensorboard(wait=True)
    seen["board"] = [board.app_uri is not None, TensorBoardStatus.is_running(board.status)]
    board.delete()
    seen["trained"] = {
        "model": json.loads(
            Path(download(posixpath.join(estimator.model_data(), "model.json"), str(folder / "got"))).read_text()
        ),
        "there": [
            exists(posixpath.join(uri, name))
            for uri, name in (
                (estimator.checkpoints_data(), "last.txt"),
                (figures, "a.svg"),
                (job.output_path(), "model.json"),
            )
        ],
        "is_oss_uri": is_oss_uri(estimator.tensorboard_data()),
        "found": TrainingJob.get(job.training_job_id).is_succeeded(),
        "status": job.status == TrainingJobStatus.Succeed,
        "completed": job.status in TrainingJobStatus.completed_status(),
        "latest": estimator.latest_job.training_job_name == job.training_job_name,
        "hyperparameters": job.hyperparameters,
    }
    failing = Estimator(command="exit 3", **here())
    try:
        failing.fit(show_logs=False)
    except UnexpectedStatusException as error:
        seen["failed"] = [error.status, failing.latest_job.is_succeeded(), failing.latest_job.is_completed()]


def processors(seen: dict) -> None:
    """With channels, and in an experiment."""
    session = get_default_session()
    experiment = Experiment.create(f"oss://{session.oss_bucket.bucket_name}/exp/", f"exp_{random_str(6)}")
    processor = Processor(
        command="echo rows=$PAI_HPS_ROWS > /ml/output/flag/output.txt",
        parameters={"rows": 3},
        experiment_config=SameConfig(experiment_id=experiment.experiment_id),
        base_job_name="processing",
        **here(),
    )
    processor.set_output_channels([Channel(name="flag")])
    processor.run()
    place = processor.get_outputs_data()["flag"]
    seen["processed"] = [
        place.startswith(experiment.artifact_uri),
        exists(posixpath.join(place, "output.txt")),
        processor.latest_job.experiment_config["ExperimentId"] == experiment.experiment_id,
    ]
    name = f"{experiment.name}_2"
    experiment.update(name=name)
    seen["experiment"] = [
        Experiment.get(experiment.experiment_id).name == name,
        Experiment.get_by_name(name).experiment_id == experiment.experiment_id,
        [each.name for each in Experiment.list(name=name)] == [name],
        experiment.tensorboard_data() == f"{experiment.artifact_uri}tensorboard/",
    ]
    with TensorBoard.create(experiment.tensorboard_data(), wait=True) as board:
        board.stop()
        board.start()
        seen["experiment"].append(board.status == TensorBoardStatus.Running)
    experiment.delete()


def algorithms(seen: dict) -> None:
    """A registered one."""
    estimator = AlgorithmEstimator(
        algorithm_name="steps",
        algorithm_version="v1",
        hyperparameters={"epochs": "5"},
        base_job_name="steps_training",
    )
    estimator.fit()
    outputs = estimator.get_outputs_data()
    seen["algorithm"] = [
        sorted(outputs),
        exists(posixpath.join(outputs["checkpoints"], "epoch_5.pth")),
        estimator.checkpoints_data() == outputs["checkpoints"],
        [each.name for each in estimator.hyperparameter_definitions],
    ]


def descriptions(seen: dict) -> None:
    """What can only be planned here, and what is left out."""
    image = retrieve("pytorch", framework_version="1.12", accelerator_type="GPU")
    seen["images"] = [
        image.framework_name,
        image.framework_version,
        image.accelerator_type,
        image.image_scope == ImageScope.TRAINING,
        all("tensorflow" in each.image_uri for each in list_images("TensorFlow")),
    ]
    lingjun = Estimator(
        image.image_uri,
        "echo hello",
        instance_type="ml.gu7ef.8xlarge-gu100",
        resource_type=ResourceType.Lingjun,
        spot_spec=SpotSpec(spot_strategy="SpotWithPriceLimit", spot_discount_limit=0.5),
        user_vpc_config=UserVpcConfig(vpc_id="vpc-1", security_group_id="sg-1"),
        experiment_config=ExperimentConfig(experiment_id="exp-none"),
    )
    lingjun.experiment_config = None
    wire = lingjun.plan({"nas": FileSystemInput("0a1b2c", "/data/")}).request.to_wire()
    seen["lingjun"] = [wire["ComputeResource"]["SpotSpec"]["SpotDiscountLimit"], wire["InputChannels"][0]["Name"]]
    for use in (lambda: lingjun.deploy("svc", None), lambda: container_serving_spec("x"), lambda: InferenceSpec()):
        try:
            use()
        except NotImplementedError as error:
            seen.setdefault("left out", []).append(str(error).partition(" is not part of")[0])


def main() -> None:
    """Everything, with the settings of ~/.pai/config.json and the key given."""
    session = setup_default_session(access_key_id=sys.argv[1], access_key_secret=sys.argv[2])
    seen: dict = {"session": [session.region_id, session.workspace_id, session.workspace_name, session.is_inner]}
    estimators(Path(sys.argv[3]), seen)
    processors(seen)
    algorithms(seen)
    descriptions(seen)
    print(json.dumps(seen))


main()

"""Run by an interpreter that has alipai, unmodified: jobs of every kind, lists, logs and experiments on a service.

Arguments: a JSON object with the service, its key and the signature to use, and a folder to work in. The last line
of the output is a JSON object of what was found.
"""

import json
import sys
import time
from pathlib import Path

import pai.session
import requests.adapters
from alibabacloud_credentials.client import Client as CredentialClient
from alibabacloud_credentials.models import Config as CredentialConfig
from alibabacloud_tea_openapi.models import Config
from pai.api.base import ServiceName
from pai.api.client_factory import ClientFactory
from pai.estimator import AlgorithmEstimator, Estimator, ExperimentConfig
from pai.exception import UnexpectedStatusException
from pai.experiment import Experiment
from pai.job import TrainingJob
from pai.job._training_job import AlgorithmSpec, Channel
from pai.libs.alibabacloud_aiworkspace20210204.models import LabelInfo
from pai.libs.alibabacloud_paistudio20220112 import models
from pai.model import RegisteredModel
from pai.processor import Processor

GIVEN, FOLDER = json.loads(sys.argv[1]), Path(sys.argv[2])
INSTANCE = "ecs.c6.large"
COPY = "cp $PAI_INPUT_TRAIN/* $PAI_OUTPUT_MODEL/; echo more > $PAI_OUTPUT_EXTRA/more.txt"
FOUND = {}
SIGNATURES = set()


def note_signatures():
    """Note by which signatures the API was asked; the object store has others."""
    send = requests.adapters.HTTPAdapter.send

    def noted(adapter, request, **rest):
        if "/api/v1/" in request.url:
            SIGNATURES.add(request.headers["Authorization"].split()[0])
        return send(adapter, request, **rest)

    requests.adapters.HTTPAdapter.send = noted


def session():
    """alipai has no setting for the host of a service: its clients are made here, and are its own otherwise."""
    key = CredentialConfig(
        access_key_id=GIVEN["access_key_id"], access_key_secret=GIVEN["access_key_secret"], type="access_key"
    )
    made = pai.session.Session(
        region_id=GIVEN["region_id"],
        workspace_id=GIVEN["workspace_id"],
        credential_config=key,
        oss_bucket_name=GIVEN["bucket"],
        oss_endpoint=GIVEN["oss_endpoint"],
        network="PUBLIC",
    )
    for name in (ServiceName.PAI_STUDIO, ServiceName.PAI_WORKSPACE):
        made.acs_client_container[name] = ClientFactory.ClientByServiceName[name](
            Config(
                region_id=GIVEN["region_id"],
                credential=CredentialClient(key),
                endpoint=GIVEN["endpoint"].removeprefix("http://"),
                protocol="http",
                signature_algorithm=GIVEN["signature_algorithm"],
                connect_timeout=60_000,
                read_timeout=60_000,
            )
        )
    pai.session._default_session = made
    return made


def ended(job):
    deadline = time.monotonic() + 120
    while not job.is_completed() and time.monotonic() < deadline:
        time.sleep(0.1)
    return job.status


def logs(job):
    return session.training_job_api.list_logs(job.training_job_id, page_size=100).items


note_signatures()
session = session()

# ---- experiments
place = f"oss://{GIVEN['bucket']}/experiments/{GIVEN['name']}/"
experiment = Experiment.create(place, GIVEN["name"], session)
labels = session.experiment_api
labels.set_experiment_labels(experiment.experiment_id, [LabelInfo(key="team", value="search")])
FOUND["experiment"] = labels.get(experiment.experiment_id)
labels.delete_experiment_label(experiment.experiment_id, "team")
FOUND["labels left"] = labels.get(experiment.experiment_id).get("Labels")
experiment.update(f"{GIVEN['name']}-2")
FOUND["experiment by name"] = Experiment.get_by_name(f"{GIVEN['name']}-2", session).experiment_id
FOUND["experiment id"] = experiment.experiment_id
FOUND["tensorboard"] = Experiment.get(experiment.experiment_id).tensorboard_data()

# ---- an estimator, with all that it can bring along, followed to its end
(FOLDER / "src").mkdir()
(FOLDER / "src" / "train.py").write_text("import os; print('rate', os.environ['PAI_HPS_LR'], 'loss=0.5')")
(FOLDER / "data").mkdir()
(FOLDER / "data" / "train.csv").write_text("1,2\n")
estimator = Estimator(
    image_uri="python:3.11",
    command=f"python3 train.py; {COPY}",
    source_dir=str(FOLDER / "src"),
    hyperparameters={"lr": 0.1},
    environments={"A": "b"},
    metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    labels={"by": "alipai"},
    max_run_time=600,
    instance_type=INSTANCE,
    experiment_config=ExperimentConfig(experiment_id=experiment.experiment_id),
)
extra = f"oss://{GIVEN['bucket']}/{GIVEN['name']}/extra/"
job = estimator.fit({"train": str(FOLDER / "data")}, {"extra": extra}, wait=True, show_logs=True)
FOUND["estimator"] = [job.status, logs(job), estimator.model_data(), job.output_path("extra")]
FOUND["job"] = session.training_job_api.get(job.training_job_id)

# ---- a processor with channels of its own
processor = Processor(
    "python:3.11", "echo processed > $PAI_OUTPUT_TABLE/table.txt; echo done", instance_type=INSTANCE
)
processor.set_output_channels([Channel(name="table", required=True)])
job = processor.run(wait=False)
FOUND["processor"] = [ended(job), logs(job), processor.get_outputs_data()]

# ---- registered algorithms, and a spec without being registered
SPEC = {
    "Image": "python:3.11",
    "Command": ["sh", "-c", f"echo epochs $PAI_HPS_EPOCHS; {COPY}"],
    "InputChannels": [{"Name": "train", "Required": True}],
    "OutputChannels": [{"Name": "model", "Required": True}],
    "HyperParameters": [{"Name": "epochs", "Type": "Int", "DefaultValue": "3"}],
    "SupportedInstanceTypes": [INSTANCE],
}
algorithm = session.algorithm_api.create(name=GIVEN["name"], description="of alipai")
# By its client: its own function for this names an argument that its client does not have.
version = models.CreateAlgorithmVersionRequest(algorithm_spec=models.AlgorithmSpec().from_map(SPEC))
session._acs_training_client.create_algorithm_version(algorithm, "v1", version)
FOUND["algorithm"] = [algorithm, session.algorithm_api.get_by_name(GIVEN["name"])["AlgorithmId"]]
algorithms = {
    "registered": AlgorithmEstimator(algorithm_name=GIVEN["name"], algorithm_version="v1", instance_type=INSTANCE),
    "latest": AlgorithmEstimator(GIVEN["name"], instance_type=INSTANCE, hyperparameters={"epochs": 4}),
    "unregistered": AlgorithmEstimator(algorithm_spec=AlgorithmSpec.model_validate(SPEC), instance_type=INSTANCE),
}
for name, estimator in algorithms.items():
    job = estimator.fit({"train": str(FOLDER / "data")}, {"extra": extra}, wait=False)
    FOUND[name] = [ended(job), logs(job), estimator.get_outputs_data()]

# ---- a registered model, trained by its recipe and by the estimator of the recipe
files = f"oss://{GIVEN['bucket']}/{GIVEN['name']}/extra/"
recipe = {
    "AlgorithmSpec": {**SPEC, "InputChannels": [*SPEC["InputChannels"], {"Name": "model"}]},
    "HyperParameters": [{"Name": "epochs", "Value": "7"}],
    "InputChannels": [{"Name": "train", "InputUri": files}],
    "ComputeResource": {"EcsSpec": INSTANCE, "EcsCount": 1},
}
model = session.model_api.create(model_name=GIVEN["name"], task="copy", labels={"by": "alipai"})
named = session.model_api.create_version(model, uri=files, training_spec=recipe, labels={"by": "alipai"})
registered = RegisteredModel(GIVEN["name"])
trained = registered.training_recipe()
job = trained.train({"train": str(FOLDER / "data")}, wait=False)
FOUND["recipe"] = [named, ended(job), logs(job), trained.model_data(), registered.model_labels]
job = registered.get_estimator(hyperparameters={"epochs": 8}).fit(registered.get_estimator_inputs(), wait=False)
FOUND["recipe's estimator"] = [ended(job), logs(job)]
FOUND["models"] = [each.model_name for each in RegisteredModel.list(task="copy")]
registered.delete(delete_all_version=True)

# ---- a job that fails, and the list of all
failing = Estimator(
    image_uri="python:3.11", command="exit 3", source_dir=str(FOLDER / "src"), instance_type=INSTANCE
)
job = failing.fit(wait=False)
FOUND["failed"] = [job.id, ended(job)]
try:
    job.wait(interval=1, show_logs=False)
except UnexpectedStatusException as error:
    FOUND["failure"] = error.status
FOUND["list"] = {each.id: each.status for each in TrainingJob.list(session=session, page_size=50)}
FOUND["signed by"] = sorted(SIGNATURES)
experiment.delete()
FOUND["experiments left"] = [each.experiment_id for each in Experiment.list(name=GIVEN["name"], session=session)]
print(json.dumps(FOUND))

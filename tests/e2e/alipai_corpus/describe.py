"""Subclasses, descriptions and constants: all that can be said before a job."""

import pai.job._training_job as models
from pai.common.consts import (
    DEFAULT_CONFIG_PATH,
    INSTANCE_TYPE_LOCAL,
    INSTANCE_TYPE_LOCAL_GPU,
    DatasetSourceType,
    DataSourceType,
    DataType,
    DefaultChannelName,
    FileProperty,
    FileSystemInputScheme,
    FrameworkTypes,
    JobType,
    ModelFormat,
    Network,
    ResourceAccessibility,
    StoragePathCategory,
)
from pai.estimator import (
    AlgorithmEstimator,
    CpfsFileSystemInput,
    Estimator,
    EstimatorBase,
    FileSystemInput,
    FileSystemInputBase,
)
from pai.exception import DuplicatedMountException, MountPathIsOccupiedException, PAIException, PredictionException
from pai.job import (
    AlgorithmSpec,
    Channel,
    CodeDir,
    HyperParameterDefinition,
    InstanceSpec,
    ModelRecipeSpec,
    OssLocation,
    ResourceType,
    SpotSpec,
    SpotStrategy,
    UriInput,
    UriOutput,
    UserVpcConfig,
)
from pai.model import ModelRecipe, ModelRecipeType
from pai.session import get_default_session, setup_default_session
from pai.toolkit.config import run as configure

session = get_default_session()
again = setup_default_session(
    region_id=session.region_id,
    workspace_id=session.workspace_id,
    oss_bucket=session.oss_bucket,
    oss_endpoint=session.oss_endpoint,
    credential_config=session.credential_config,
    network=Network.from_string("public"),
)
again.save_config("saved.json")
assert callable(configure) and DEFAULT_CONFIG_PATH.endswith("config.json")

assert issubclass(ModelRecipe, EstimatorBase) and ModelRecipeType.TRAINING.value == "training"
assert ModelRecipeSpec.__name__ == "ModelRecipeSpec"

# ---- constants
assert (INSTANCE_TYPE_LOCAL, INSTANCE_TYPE_LOCAL_GPU) == ("local", "local_gpu")
assert JobType.normalize("pytorchjob") == JobType.PyTorchJob == "PyTorchJob"
assert {DefaultChannelName.MODEL, DefaultChannelName.CHECKPOINT} == {"model", "checkpoints"}
assert (FileSystemInputScheme.NAS, DataSourceType.OSS, FileProperty.FILE) == ("nas", "OSS", "FILE")
assert (DataType.TEXT, DatasetSourceType.USER, ResourceAccessibility.PUBLIC) == ("TEXT", "USER", "PUBLIC")
assert (ModelFormat.ONNX, FrameworkTypes.PyTorch, StoragePathCategory.TrainData) == (
    "ONNX",
    "PyTorch",
    "train_data",
)


# ---- a subclass, and the parts of its request
class MyEstimator(Estimator):
    def built(self):
        channels = [Channel(name="train", required=True)]
        inputs = self.build_inputs({"train": "oss://models/train/"}, channels)
        return inputs, self.build_outputs(self.job_name(), [Channel(name="model")])


class Folder(FileSystemInputBase):
    def to_input_uri(self, region_id=None):
        return "nas://0a1b2c.cn-hangzhou/own/"


est = MyEstimator("python:3.11", "true", instance_type="ecs.c6.large", base_job_name="mine")
inputs, outputs = est.built()
assert inputs == [UriInput(name="train", input_uri="oss://models/train/").to_dict()]
assert [each["Name"] for each in outputs] == ["model"]
assert isinstance(est, EstimatorBase) and not est.hyperparameters

# ---- what only the cloud can run
lingjun = Estimator(
    "python:3.11",
    "python train.py",
    source_dir="src",
    resource_id="quota1a2b3c",
    resource_type=ResourceType.Lingjun,
    instance_spec=InstanceSpec(cpu=4, memory=8, gpu=1),
    spot_spec=SpotSpec(spot_strategy=SpotStrategy.SpotWithPriceLimit, spot_discount_limit=0.5),
    user_vpc_config=UserVpcConfig(vpc_id="vpc-1", switch_id="vsw-1", security_group_id="sg-1"),
)
assert lingjun.spot_spec.spot_discount_limit == 0.5 and lingjun.user_vpc_config.vpc_id == "vpc-1"
for mounted in (FileSystemInput("0a1b2c", "/data/"), CpfsFileSystemInput("cpfs-1", "ptc-1", "exp-1"), Folder()):
    assert "://" in mounted.to_input_uri("cn-hangzhou")

# ---- an algorithm without being registered
spec = AlgorithmSpec(
    image="python:3.11",
    command=["sh", "-c", "echo $PAI_HPS_EPOCHS > /ml/output/model/epochs.txt"],
    job_type="PyTorchJob",
    output_channels=[Channel(name="model", required=True)],
    hyperparameter_definitions=[HyperParameterDefinition(name="epochs", type="Int", default_value="1")],
)
code = CodeDir(location_type="oss", location_value=OssLocation(bucket="models", key="code/"))
assert code.to_dict()["LocationValue"]["Bucket"] == "models"
assert UriOutput(name="model", output_uri="oss://models/m/").to_dict()["OutputUri"] == "oss://models/m/"
for name in ("ComputeResource", "DatasetConfig", "HyperParameter", "MetricDefinition", "SchedulerConfig"):
    assert hasattr(getattr(models, name), "to_dict")

algorithm = AlgorithmEstimator(
    algorithm_spec=spec, hyperparameters={"epochs": 4}, instance_type="ecs.c6.large", base_job_name="steps"
)
assert [each.name for each in algorithm.hyperparameter_definitions] == ["epochs"]
assert [each.name for each in algorithm.output_channel_definitions] == ["model"]
assert not algorithm.input_channel_definitions and not algorithm.supported_instance_types
algorithm.fit(wait=True, show_logs=False)
assert sorted(algorithm.get_outputs_data()) == ["model"]

try:
    raise PredictionException("no service")
except (DuplicatedMountException, MountPathIsOccupiedException, PAIException) as error:
    assert error.message == "no service" and error.code is None

"""Names of SageMaker, Azure ML and Vertex AI with their replacements: the only list of them but for modules.

`keywords` reads it for arguments, `lazy_names` for imports, and `aliases` for attributes. A test compares it with
the pages "Coming from …".

Standard library only: this is loaded with `Estimator` and `Processor`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from pai_sdk.errors import NotOfferedAttributeError, NotOfferedError

DIFFERS = object()
"""The result of a conversion whose value means something that ours does not."""


class Keyword(NamedTuple):
    """A keyword argument of another SDK."""

    parameter: str  # the parameter of this package that it concerns; empty if none does
    instead: str  # what to do, for the error
    # of an accepted keyword: its value to that of our parameter, or `DIFFERS`
    convert: Callable[[Any], Any] | None = None


# ---- values of keywords that are accepted


def _same(value: Any) -> Any:
    return value


def _command_of(entry_point: Any) -> Any:
    """Returns the command that runs a script with the hyperparameters as arguments, as SageMaker does."""
    text = os.fspath(entry_point) if isinstance(entry_point, str | os.PathLike) else ""
    program = {".py": "python", ".sh": "bash"}.get(os.path.splitext(text)[1])  # noqa: PTH122 - a name, no path
    return DIFFERS if program is None else f"{program} {shlex.quote(text)} $PAI_USER_ARGS"


def _bucket_name_of(bucket: Any) -> Any:
    """Returns the name of a bucket; alipai's users also pass an `oss2.Bucket`."""
    return bucket if isinstance(bucket, str) else getattr(bucket, "bucket_name", DIFFERS)


def _labels_of(tags: Any) -> Any:
    if isinstance(tags, Mapping):
        return tags
    try:
        return {tag["Key"]: tag["Value"] for tag in tags}
    except (TypeError, KeyError):
        return DIFFERS


def _environments_of(environment: Any) -> Any:
    """Returns variables by name; an environment of Azure ML, which is an image with packages, differs."""
    return environment if isinstance(environment, Mapping) else DIFFERS


def _direction_of(objective: Any) -> Any:
    return objective.lower() if str(objective).lower() in ("minimize", "maximize") else DIFFERS


def _role_arn_of(role: Any) -> Any:
    return role if isinstance(role, str) and role.startswith("acs:ram::") else DIFFERS


def _spot_spec_of(use: Any) -> Any:
    """Returns the spot spec without a price limit, as SageMaker's spot instances have none."""
    if use is False:
        return None
    return {"spot_strategy": "SpotAsPriceGo"} if use is True else DIFFERS


# ---- keyword arguments

OF_JOBS = "instance_type"
"""A parameter of everything that describes jobs; keywords that concern none of ours are explained beside it."""

_COMMAND = "the command names it: command='python train.py'"
_COUNT = "instance_count=2"
_SHELL = "leave it out: `pai-sdk exec JOB` is a shell in a job on this machine, job.tensorboard() shows metrics"
_DISK = "the disk comes with the instance_type; large data goes to channels"
_GPU = "GPUs are part of the instance_type"
_IMAGE = "the image decides: image_uri=retrieve('PyTorch', '1.12').image_uri"
_INPUTS = "inputs of fit() or run(): {'train': 'oss://bucket/data/'}; values such as lr are hyperparameters"
_USE_REPORT = "leave it out: report() in the job keeps values, and job.metrics() reads them"
_MAX_WAIT = "the queue has no limit; job.wait(timeout=…) limits the waiting"
_NOT_SERVED = "leave it out: pai_sdk does not serve models"
_PARALLEL = "parallel=4"
_BUCKET_ENCRYPTION = "leave it out: the encryption of files is a setting of the bucket"
_RETRIES = "max_retries=3; retry_on=[…] names the endings; fallback=[…] is for a lack of capacity"
_RESUME = "resume=True, resume='<job id>' or resume='<uri>'"
_SEVERAL = "job_type='PyTorchJob' and instance_count=…, with torchrun in the command"
_SIZE = "processors and memory are part of the instance_type; in a quota of your own, instance_spec has them"
_SLURM = "Session.embedded(folder, executor='slurm', executor_options={'partition': 'gpu'}), for all of its jobs"
_SPOT = "spot_spec=SpotSpec(spot_strategy='SpotAsPriceGo')"
_TRIALS = "trials=20"
_USER_ARGS = "hyperparameters={'lr': 0.1}, which $PAI_USER_ARGS in the command passes on as --lr 0.1"
_VARIABLES = "environments={'NAME': 'value'} are the variables of the job; image_uri is its image"
_VPC = "user_vpc_config=UserVpcConfig(vpc_id=…, switch_id=…, security_group_id=…)"
_FOLDER_INPUTS = "leave it out: an input is a folder at $PAI_INPUT_<CHANNEL>"
_WORKSPACE = "workspace_id='12345'; session.workspaces.list() shows the ids"

# Of launchers, or of no SDK: what people try first.
GUESSES: Mapping[str, Keyword] = {
    **dict.fromkeys(
        ("hparams", "hyper_params", "params", "config"), Keyword("hyperparameters", "hyperparameters={'lr': 0.1}")
    ),
    **dict.fromkeys(
        ("gpu", "gpus", "num_gpus", "gpu_count", "gpus_per_node", "accelerators"), Keyword("instance_type", _GPU)
    ),
    **dict.fromkeys(("cpu", "cpus", "mem", "memory", "mem_gb", "cpus_per_task"), Keyword("instance_type", _SIZE)),
    **dict.fromkeys(
        ("machine", "instance", "vm_size", "flavor"), Keyword("instance_type", "instance_type='ecs.c6.large'")
    ),
    **dict.fromkeys(("use_spot", "spot_instance", "spot_instances", "preemptible"), Keyword("spot_spec", _SPOT)),
    **dict.fromkeys(("nodes", "num_nodes", "num_instances", "workers"), Keyword("instance_count", _COUNT)),
    **dict.fromkeys(
        ("channels", "data", "input_channels", "train_data", "file_mounts", "volumes"), Keyword("", _INPUTS)
    ),
    **dict.fromkeys(
        ("container_image", "docker_image", "image"), Keyword("image_uri", "did you mean 'image_uri'?")
    ),
    **dict.fromkeys(("cmd", "script"), Keyword("command", _COMMAND)),
    **dict.fromkeys(("env_vars", "envs", "variables"), Keyword("environments", _VARIABLES)),
    **dict.fromkeys(("code_dir", "code_path", "source", "workdir"), Keyword("source_dir", "source_dir='src'")),
    **dict.fromkeys(("output", "output_uri"), Keyword("output_path", "output_path='oss://bucket/folder/'")),
    **dict.fromkeys(("budget", "cost_limit"), Keyword("max_cost", "max_cost=5.0, with max_run_time=3600")),
    **dict.fromkeys(("slurm_account", "slurm_partition", "slurm_qos"), Keyword("", _SLURM)),
    "attempts": Keyword("max_retries", _RETRIES),
    "bucket": Keyword("oss_bucket_name", "oss_bucket_name='models'"),
    "detach": Keyword("wait", "wait=False"),
    "dry_run": Keyword("", "plan(), which takes the same inputs, gives the request and sends nothing"),
    "region": Keyword("region_id", "region_id='cn-hangzhou'"),
    "secrets": Keyword("environments", "environments={'HF_TOKEN': Secret('HF_TOKEN')} reads it at submit time"),
    "setup": Keyword("requirements", "requirements=['numpy'], or lines before the program in command"),
    "timeout_min": Keyword("max_run_time", "max_run_time=3600, in seconds"),
    "workspace": Keyword("workspace_id", _WORKSPACE),
}

KEYWORDS: Mapping[str, Keyword] = {
    # Accepted, where the value means the same.
    "checkpoint_s3_uri": Keyword("checkpoints_path", "checkpoints_path='oss://bucket/folder/'", _same),
    "code": Keyword("source_dir", "source_dir='src' and command='python train.py'", _same),
    "container_uri": Keyword("image_uri", "image_uri='python:3.11'", _same),
    "credential_config": Keyword("credentials", "credentials=…", _same),  # alipai's
    "default_bucket": Keyword("oss_bucket_name", "oss_bucket_name='models'", _same),
    "default_training_inputs": Keyword("default_inputs", "default_inputs=…", _same),  # alipai's
    "entry_point": Keyword("command", _COMMAND, _command_of),
    "entry_script": Keyword("command", _COMMAND, _command_of),
    "entrypoint": Keyword("command", _COMMAND, _same),
    "env": Keyword("environments", _VARIABLES, _environments_of),
    "environment": Keyword("environments", _VARIABLES, _environments_of),
    "environment_variables": Keyword("environments", _VARIABLES, _environments_of),
    "local_path": Keyword("source_path", "source_path=…", _same),  # of alipai's documentation, where it raises
    "logs": Keyword("show_logs", "show_logs=True", bool),
    "max_concurrent_trials": Keyword("parallel", _PARALLEL, _same),
    "max_jobs": Keyword("trials", _TRIALS, _same),
    "max_parallel_jobs": Keyword("parallel", _PARALLEL, _same),
    "max_run": Keyword("max_run_time", "max_run_time=3600", _same),
    "max_runtime_in_seconds": Keyword("max_run_time", "max_run_time=3600", _same),
    "max_total_trials": Keyword("trials", _TRIALS, _same),
    "max_trial_count": Keyword("trials", _TRIALS, _same),
    "objective_metric_name": Keyword("objective", "objective='loss'", _same),
    "objective_type": Keyword("direction", "direction='minimize' or 'maximize'", _direction_of),
    "oss_bucket": Keyword(
        "oss_bucket_name", "oss_bucket_name='models'", _bucket_name_of
    ),  # of alipai's documentation
    "parallel_trial_count": Keyword("parallel", _PARALLEL, _same),
    "poll": Keyword("interval", "interval=5", _same),
    "replica_count": Keyword("instance_count", "instance_count=2", _same),
    "role": Keyword(
        "role_arn",
        "leave it out: the access key decides what you may do; the role that the job assumes is role_arn",
        _role_arn_of,
    ),
    "sagemaker_session": Keyword("session", "session=Session(…)", _same),
    "supported_instance_type": Keyword(
        "supported_instance_types", "supported_instance_types=[…]", _same
    ),  # alipai's
    "sync": Keyword("wait", "wait=True", bool),
    "tags": Keyword("labels", "labels={'key': 'value'}", _labels_of),
    "training_job_id": Keyword("job_id", "job_id='train-…'", _same),  # alipai's
    "training_image": Keyword("image_uri", "image_uri='python:3.11'", _same),
    "use_spot_instances": Keyword("spot_spec", _SPOT, _spot_spec_of),
    # of SageMaker's first version
    "train_instance_count": Keyword("instance_count", "instance_count=2", _same),
    "train_instance_type": Keyword("instance_type", "instance_type='ecs.c6.large'", _same),
    "train_max_run": Keyword("max_run_time", "max_run_time=3600", _same),
    "train_use_spot_instances": Keyword("spot_spec", _SPOT, _spot_spec_of),
    "enable_managed_spot_training": Keyword("spot_spec", _SPOT, _spot_spec_of),
    # Searches.
    "hyperparameter_ranges": Keyword("search", "search={'lr': LogUniform(1e-5, 1e-1)}"),
    "early_stopping_type": Keyword("pruner", "pruner='median' or 'asha'"),
    # What runs: image, command, code.
    "framework_version": Keyword("image_uri", _IMAGE),
    "image_name": Keyword("image_uri", "image_uri='python:3.11'"),
    "py_version": Keyword("image_uri", _IMAGE),
    "training_image_config": Keyword("image_uri", "leave it out: the key of a registry belongs to the service"),
    "container_entry_point": Keyword("command", "command='python train.py', or a list"),
    "container_arguments": Keyword("command", "command='python train.py --lr 0.1', or a list"),
    "script_path": Keyword("command", "source_dir='src', command='python train.py'"),
    "python_module_name": Keyword("command", "command='python -m trainer.task'"),
    "python_package_gcs_uri": Keyword("requirements", "requirements=[…], or the package in source_dir"),
    "args": Keyword("command", f"write them in the command, or {_USER_ARGS}"),
    "arguments": Keyword(
        "command", "write them in the command, or give parameters={'rows': 100} to the Processor"
    ),
    "source_code": Keyword("source_dir", "source_dir='src', command='python train.py', requirements=[…]"),
    "code_location": Keyword("session", "code goes to the bucket of the session: Session(oss_bucket_name=…)"),
    "dependencies": Keyword("requirements", "folders go into source_dir, packages into requirements=[…]"),
    "ignore_patterns": Keyword("source_dir", "write the patterns into .gitignore or .paiignore in source_dir"),
    "container_log_level": Keyword("environments", "the script sets it: environments={'LOG_LEVEL': 'INFO'}"),
    "training_recipe": Keyword("command", "leave it out: pai_sdk runs a command in an image"),
    # Where it runs.
    "compute": Keyword(
        "instance_type",
        "instance_type='ecs.c6.large', instance_count=1; for a quota of your own, resource_id and instance_spec",
    ),
    "resources": Keyword("instance_type", "instance_type='ecs.c6.large', instance_count=1"),
    "machine_type": Keyword("instance_type", "instance_type='ecs.c6.large'"),
    "accelerator_type": Keyword("instance_type", _GPU),
    "accelerator_count": Keyword("instance_type", _GPU),
    "worker_pool_specs": Keyword("instance_type", "image_uri, command, instance_type and instance_count"),
    "instance_groups": Keyword("roles", "roles={'Worker': Role(instance_count=2), 'Evaluator': Role()}"),
    "volume_size": Keyword("instance_type", _DISK),
    "volume_size_in_gb": Keyword("instance_type", _DISK),
    "boot_disk_size_gb": Keyword("instance_type", _DISK),
    "boot_disk_type": Keyword("instance_type", _DISK),
    "shm_size": Keyword("instance_type", "leave it out: shared memory comes with the instance_type"),
    "docker_args": Keyword("", "leave it out: the service starts the containers"),
    "keep_alive_period_in_seconds": Keyword("resource_id", "resource_id names a quota whose instances are kept"),
    "spot": Keyword("spot_spec", _SPOT),
    "job_tier": Keyword("spot_spec", _SPOT),
    "scheduling_strategy": Keyword("spot_spec", _SPOT),
    "distribution": Keyword("job_type", _SEVERAL),
    "distributed": Keyword("job_type", _SEVERAL),
    "network": Keyword("user_vpc_config", _VPC),
    "networking": Keyword("user_vpc_config", _VPC),
    "network_config": Keyword("user_vpc_config", _VPC),
    "subnets": Keyword("user_vpc_config", _VPC),
    "security_group_ids": Keyword("user_vpc_config", _VPC),
    "enable_network_isolation": Keyword("user_vpc_config", f"the rules of a VPC decide: {_VPC}"),
    "identity": Keyword("role_arn", "the role that the job assumes is role_arn"),
    "service_account": Keyword("role_arn", "the role that the job assumes is role_arn"),
    # How long, and what if.
    "max_wait": Keyword("max_run_time", _MAX_WAIT),
    "stopping_condition": Keyword("max_run_time", "max_run_time=3600, in seconds"),
    "limits": Keyword("max_run_time", "max_run_time=3600, in seconds"),
    "timeout": Keyword("max_run_time", "max_run_time=3600 limits the job, job.wait(timeout=…) the waiting"),
    "max_retry_attempts": Keyword("max_retries", _RETRIES),
    "restart_job_on_worker_restart": Keyword("max_retries", _RETRIES),
    "resume_from": Keyword("resume", _RESUME),
    "resume_from_checkpoint": Keyword("resume", _RESUME),
    # Data.
    "input_data_config": Keyword("", _INPUTS),
    "inputs": Keyword("", _INPUTS),
    "outputs": Keyword("", "outputs of fit() or run(): {'figures': 'oss://bucket/figures/'}"),
    "dataset": Keyword("", _INPUTS),
    "model_uri": Keyword("", "an input: fit({'model': 'oss://bucket/model/'})"),
    "model_channel_name": Keyword("", "an input: fit({'model': 'oss://bucket/model/'})"),
    "input_mode": Keyword("", _FOLDER_INPUTS),
    "training_input_mode": Keyword("", _FOLDER_INPUTS),
    "output_data_config": Keyword("output_path", "output_path='oss://bucket/folder/'"),
    "output_dir": Keyword("output_path", "output_path='oss://bucket/folder/'"),
    "base_output_dir": Keyword("output_path", "output_path='oss://bucket/folder/', with a folder for each job"),
    "disable_output_compression": Keyword("", "leave it out: outputs are folders, and not compressed"),
    "checkpoint_config": Keyword("checkpoints_path", "checkpoints_path='oss://bucket/folder/'"),
    "checkpoint_local_path": Keyword(
        "checkpoints_path",
        "leave it out: the job's folder is $PAI_OUTPUT_CHECKPOINTS; checkpoints_path is its URI",
    ),
    "volume_kms_key": Keyword("", _BUCKET_ENCRYPTION),
    "output_kms_key": Keyword("", _BUCKET_ENCRYPTION),
    "kms_key": Keyword("", _BUCKET_ENCRYPTION),
    "encrypt_inter_container_traffic": Keyword(
        "", "leave it out: the instances of a job are in one private network"
    ),
    # Names, metrics, tools.
    "name": Keyword("base_job_name", "base_job_name='digits', or fit(job_name='digits-1')"),
    "display_name": Keyword("base_job_name", "base_job_name='digits'"),
    "experiment_name": Keyword("experiment_config", "experiment_config=Experiment.create('digits')"),
    "properties": Keyword("labels", "labels={'key': 'value'}"),
    "debugger_hook_config": Keyword("", _USE_REPORT),
    "enable_sagemaker_metrics": Keyword("", _USE_REPORT),
    "profiler_config": Keyword("", _USE_REPORT),
    "disable_profiler": Keyword("", "leave it out: there is no profiler"),
    "queue_settings": Keyword("priority", "priority=5, a number from 1 to 9"),
    "rules": Keyword("", _USE_REPORT),
    "tensorboard": Keyword("", "write to $PAI_OUTPUT_TENSORBOARD; job.tensorboard() shows it"),
    "tensorboard_output_config": Keyword("", "write to $PAI_OUTPUT_TENSORBOARD; job.tensorboard() shows it"),
    "services": Keyword("", _SHELL),
    "enable_web_access": Keyword("", _SHELL),
    "model_display_name": Keyword("", _NOT_SERVED),
    "model_serving_container_image_uri": Keyword("", _NOT_SERVED),
    "train_max_wait": Keyword("max_run_time", _MAX_WAIT),
    "train_volume_size": Keyword("instance_type", _DISK),
    "train_volume_kms_key": Keyword("", _BUCKET_ENCRYPTION),
    **GUESSES,
    # Of a session.
    "boto_session": Keyword(
        "credentials", "region_id='cn-hangzhou', and a key in environment variables or credentials=…"
    ),
    "credential": Keyword("credentials", "a key in environment variables, or credentials=…"),
    "default_bucket_prefix": Keyword("oss_bucket_name", "output_path='oss://bucket/folder/' of an Estimator"),
    "location": Keyword("region_id", "region_id='cn-hangzhou'"),
    "project": Keyword("workspace_id", _WORKSPACE),
    "resource_group_name": Keyword("workspace_id", _WORKSPACE),
    "staging_bucket": Keyword("oss_bucket_name", "oss_bucket_name='models', without a scheme"),
    "subscription_id": Keyword("workspace_id", f"the key belongs to the account; {_WORKSPACE}"),
    "workspace_name": Keyword("workspace_id", _WORKSPACE),
}
"""Keyword arguments: where they are accepted, or what replaces them."""

# ---- names to import

_COMPUTE_OF_ESTIMATOR = "Estimator(instance_type='ecs.c6.large', instance_count=2)"
_ESTIMATOR = (
    "Estimator(image_uri=…, command='python train.py $PAI_USER_ARGS', source_dir='src', instance_type=…).fit({…})"
)
_FRAMEWORK = (
    "Estimator(image_uri=retrieve('PyTorch', '1.12').image_uri, entry_point='train.py', …), or any other image"
)
_INPUT = "a URI or a local path: fit({'train': 'oss://bucket/data/'})"
_RANGE = "ranges: {'lr': LogUniform(1e-5, 1e-1), 'units': IntRange(16, 256), 'optimizer': ['adam', 'sgd']}"
_TUNER = "Tuner(estimator, {'lr': LogUniform(1e-5, 1e-1)}, 'loss', trials=20, parallel=4).run()"
_PROCESSOR = "Processor(image_uri=…, command='python prepare.py', source_dir='src').run({'data': …})"
_REPORT = "report({'loss': 0.1}) in the job; session.runs, job.metrics() and compare() read it"
_STEPS = "Pipeline: pipeline.step(estimator, inputs={'data': other.outputs.model})"
_TORCHRUN = "instance_count=2, with torchrun in the command; the job has MASTER_ADDR, RANK and WORLD_SIZE"

NAMES: Mapping[str, str] = {
    # SageMaker, v2 and v3
    "CategoricalParameter": _RANGE,
    "ContinuousParameter": _RANGE,
    "DebuggerHookConfig": _USE_REPORT,
    "HyperparameterTuner": _TUNER,
    "IntegerParameter": _RANGE,
    "HuggingFace": _FRAMEWORK,
    "PyTorch": _FRAMEWORK,
    "SKLearn": _FRAMEWORK,
    "TensorFlow": _FRAMEWORK,
    "XGBoost": _FRAMEWORK,
    "FrameworkProcessor": _PROCESSOR,
    "ParameterFloat": "pipeline.parameter('lr', float)",
    "ProcessingStep": _STEPS,
    "TrainingStep": _STEPS,
    "ProcessingInput": "a dict: run({'data': 'oss://bucket/data/'}), in the job $PAI_INPUT_DATA",
    "ProcessingOutput": "a dict: run(outputs={'clean': 'oss://bucket/clean/'}), in the job $PAI_OUTPUT_CLEAN",
    "ProfilerConfig": "leave it out: there is no profiler",
    "PySparkProcessor": _PROCESSOR,
    "SKLearnProcessor": _PROCESSOR,
    "ScriptProcessor": _PROCESSOR,
    "TensorBoardOutputConfig": "write to $PAI_OUTPUT_TENSORBOARD; job.tensorboard() shows it",
    "TrainingInput": _INPUT,
    "TrainingJobAnalytics": "job.metrics()",
    "LocalSession": "instance_type='local' runs the job in Docker here; Session.embedded() needs no Docker",
    "get_execution_role": "leave it out: the access key decides what you may do",
    "image_uris": "retrieve('PyTorch', '1.12').image_uri of pai_sdk.jobs",
    "Compute": _COMPUTE_OF_ESTIMATOR,
    "InputData": _INPUT,
    "ModelTrainer": _ESTIMATOR,
    "MPI": _TORCHRUN,
    "Networking": f"Estimator({_VPC})",
    "OutputDataConfig": "Estimator(output_path='oss://bucket/folder/')",
    "S3DataSource": _INPUT,
    "SourceCode": "Estimator(source_dir='src', command='python train.py $PAI_USER_ARGS', requirements=[…])",
    "StoppingCondition": "Estimator(max_run_time=3600)",
    "Torchrun": _TORCHRUN,
    # Azure ML
    "AmlCompute": "leave it out: instance_type names the instances, and the service starts them",
    "AssetTypes": "leave it out: an input may be a file or a folder",
    "BuildContext": "build the image yourself, and give it as image_uri",
    "Data": "a URI, a local path, or the id of a dataset: fit({'train': 'd-…'})",
    "DefaultAzureCredential": "a key of Alibaba Cloud, in environment variables or by Session(access_key_id=…)",
    "Environment": "Estimator(image_uri=…, requirements=[…])",
    "Input": _INPUT,
    "JobResourceConfiguration": _COMPUTE_OF_ESTIMATOR,
    "MLClient": "Session('cn-hangzhou', '12345'), or Session.embedded(); jobs are submitted by Estimator(…).fit()",
    "MpiDistribution": _TORCHRUN,
    "Output": "a URI: fit(outputs={'figures': 'oss://bucket/figures/'}); model and checkpoints have a default",
    "PyTorchDistribution": _TORCHRUN,
    "TensorFlowDistribution": "Estimator(job_type='TFJob', instance_count=2); the job has TF_CONFIG",
    "command": _ESTIMATOR,
    "dsl": _STEPS,
    "load_job": "a job file: pai-sdk run job.yaml",
    "sweep": _TUNER,
    # Vertex AI
    "CustomContainerTrainingJob": "Estimator(image_uri=…, command=[…], instance_type=…).fit()",
    "CustomJob": "Estimator(image_uri=…, command=[…], instance_type=…).fit()",
    "CustomPythonPackageTrainingJob": _ESTIMATOR,
    "CustomTrainingJob": _ESTIMATOR,
    "HyperparameterTuningJob": _TUNER,
    "aiplatform": "Estimator, Session and the other names of pai_sdk",
    "init": "setup_default_session(region_id=…, workspace_id=…, oss_bucket_name=…)",
    "log_metrics": _REPORT,
    "log_params": "Estimator(hyperparameters={'lr': 0.1}); the job keeps them",
    "start_run": _REPORT,
}
"""Names to import from the package: `from pai_sdk import TrainingInput`."""

# ---- attributes

_BOTO = "the methods of the session: session.get_job(id), session.list_jobs(), session.upload(path, uri)"
_URI_OF_MODEL = "estimator.model_data() is the URI of the model; pai_sdk does not serve models"

ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "JobSubmitter": {
        "cancel": "latest_job.stop()",
        "create_or_update": "fit() or run()",
        "logs": "latest_job.logs()",
        "resource_name": "latest_job.id",
        "set_limits": "max_run_time=3600",
        "set_resources": "instance_type='ecs.c6.large', instance_count=1",
        "state": "latest_job.status",
    },
    "EstimatorBase": {
        "_current_job_name": "latest_job.name",
        "latest_job_tensorboard_artifacts_path": "tensorboard_data()",
        "register": _URI_OF_MODEL,
        "run": "fit({'train': 'oss://bucket/data/'})",
        "sweep": _TUNER,
        "train": "fit({'train': 'oss://bucket/data/'})",
        "training_job_analytics": "latest_job.metrics()",
        "transformer": "a Processor, which runs a command on data",
        "with_checkpoint_config": "checkpoints_path='oss://bucket/folder/'",
        "with_metric_definitions": "metric_definitions=[{'name': 'loss', 'regex': 'loss=([0-9.]+)'}]",
    },
    "Processor": {"fit": "run({'data': 'oss://bucket/data/'})"},
    "TrainingJob": {
        "begin_cancel": "stop()",
        "cancel": "stop()",
        "describe": "record",
        "display_name": "name",
        "failure_reason": "reason_message",
        "has_failed": "status.is_failure",
        "job_name": "name",
        "model_artifacts": "outputs['model'], or download('model', 'model/')",
        "resource_name": "id",
        "secondary_status": "status",
        "state": "status",
        "stream": "wait(), or logs(follow=True)",
        "studio_url": "console_url",
        "training_job_arn": "id",
        "training_job_status": "status",
    },
    "Session": {
        "begin_create_or_update": "Estimator(…).fit()",
        "boto_region_name": "region_id",
        "boto_session": _BOTO,
        "compute": "leave it out: instance_type names the instances, and the service starts them",
        "create_or_update": "Estimator(…).fit()",
        "data": "session.upload(path, uri); fit({'train': 'data/'}) uploads local files by itself",
        "datastores": "session.upload(path, uri); fit({'train': 'data/'}) uploads local files by itself",
        "describe_training_job": "session.get_job(id).record",
        "download_data": "session.download('oss://bucket/folder/', 'folder/')",
        "environments": "image_uri of an Estimator; session.images.list() shows images",
        "jobs": "session.get_job(id), session.list_jobs(), job.wait(), job.stop()",
        "logs_for_job": "session.get_job(id).logs()",
        "sagemaker_client": _BOTO,
        "stop_training_job": "session.get_job(id).stop()",
        "wait_for_job": "session.get_job(id).wait()",
    },
}
"""Attributes of objects, by the name of our class; subclasses have them too."""

# ---- values

_VALUES = {
    r"(arn:aws[\w-]*:iam|acs:ram)::": (
        "is a role",
        "role_arn='acs:ram::…' takes it; parameters by position are image_uri, command, source_dir",
    ),
    r".*\$\{\{\s*(inputs|outputs)\.": (
        "has a placeholder of Azure ML",
        "write $PAI_INPUT_<CHANNEL>, $PAI_OUTPUT_<CHANNEL>, and $PAI_USER_ARGS for the hyperparameters",
    ),
    r".*<bound method ": (
        "contains a method that was not called",
        "write it with brackets: estimator.model_data()",
    ),
    r"(s3|gs|azureml|wasbs|abfss)://": ("is a URI of another cloud", "here it is oss://bucket/folder/"),
}


def value_hint(value: object) -> tuple[str, str] | None:
    """Returns problem and replacement of a string of another SDK; None for other values."""
    if not isinstance(value, str):
        return None
    return next((hint for pattern, hint in _VALUES.items() if re.match(pattern, value, re.DOTALL)), None)


def keyword_hint(name: str, parameters: Collection[str]) -> str:
    """Returns the replacement of a keyword of another SDK for a call with these parameters; empty for others."""
    parameter, instead, _ = KEYWORDS.get(name, ("", "", None))
    return instead if (parameter or OF_JOBS) in parameters else ""


def attribute_hint(kind: type, name: str) -> str | None:
    """Returns the replacement of an attribute of another SDK for a class of pai_sdk, or None."""
    return next((hints[name] for c in kind.__mro__ if name in (hints := ATTRIBUTES.get(c.__name__, {}))), None)


def check_name(name: str, package: str = "pai_sdk", *, is_import: bool = True) -> None:
    """Refuses a name of another SDK that is imported from a package of pai_sdk, or is an attribute of it."""
    if name in NAMES:
        # Outside an import it is an AttributeError too, so that `hasattr` and `getattr` with a default work.
        raise (
            NotOfferedError(name, NAMES[name])
            if is_import
            else NotOfferedAttributeError(package, name, NAMES[name])
        )

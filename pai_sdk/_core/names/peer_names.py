"""Arguments and attributes of SageMaker, Azure ML and Vertex AI with their replacements.

`keywords` reads it for arguments, `peer_attributes` for attributes; `peer_imports` has the names of imports. Tests
compare it with the pages "Coming from …", and with the names that the packages of these SDKs have.

Standard library only: this is loaded with `Estimator` and `Processor`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

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

OF_SESSIONS = frozenset(("credentials", "endpoint", "oss_bucket_name", "region_id", "workspace_id"))
"""Parameters of sessions; whatever else takes them has a parameter `session`."""

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
    "limit": Keyword("skip", "take a slice of the list: session.list_jobs()[:10]"),
    "region": Keyword("region_id", "region_id='cn-hangzhou'"),
    "secrets": Keyword("environments", "environments={'HF_TOKEN': Secret('HF_TOKEN')} reads it at submit time"),
    "setup": Keyword("requirements", "requirements=['numpy'], or lines before the program in command"),
    "timeout_min": Keyword("max_run_time", "max_run_time=3600, in seconds"),
    "workspace": Keyword("workspace_id", _WORKSPACE),
}


def _alike(names: str, parameter: str, instead: str) -> dict[str, Keyword]:
    """Returns the same entry for several keywords."""
    return dict.fromkeys(names.split(), Keyword(parameter, instead))


_API_TRANSPORT = "leave it out: requests are HTTP, with the retries of retry=RetryPolicy(…)"
_AUTO_SAMPLER = "sampler='tpe', 'random', 'grid', 'cmaes' or a sampler of Optuna"
_CODE = "code goes to the bucket of the session: Session(oss_bucket_name=…)"
_ESTIMATOR_FIRST = "the first argument: Tuner(Estimator(…), {'lr': LogUniform(1e-5, 1e-1)}, 'loss')"
_INTERNAL = "leave it out: it is internal to that SDK"
_NO_REDUCTION = "leave it out: torchrun reduces gradients among the instances"
_QUOTA = "resource_id names a quota with machines of your own"
_REGISTRY_KEY = "leave it out: the key of a registry belongs to the service"
_SAMPLES = "leave it out: the script splits its data; {'train': 'oss://bucket/train/', 'test': '…'} are two inputs"
_SETTINGS = "each setting is a parameter, such as region_id; config_path='…' names a file with them"

SELDOM: Mapping[str, Keyword] = {
    # What runs.
    **_alike("container_version estimator_cls framework pytorch_version", "image_uri", _IMAGE),
    **_alike("tensorflow_version toolkit toolkit_version transformers_version", "image_uri", _IMAGE),
    **_alike("training_repository_access_mode", "image_uri", _REGISTRY_KEY),
    **_alike("training_repository_credentials_provider_arn", "image_uri", _REGISTRY_KEY),
    **_alike("configuration_location dependency_location input_s3_key_prefix", "session", _CODE),
    **_alike("script_mode submit_app", "command", _COMMAND),
    **_alike(
        "codeartifact_repo_arn requirements_file",
        "requirements",
        "requirements=['numpy'], or a file in source_dir",
    ),
    **_alike("submit_files submit_jars submit_py_files", "source_dir", "files go into source_dir"),
    **_alike("git_config", "parameters", "source_dir='src', of a clone that you have made"),
    **_alike("configuration", "environments", _VARIABLES),
    **_alike(
        "evaluation_steps training_steps",
        "hyperparameters",
        "hyperparameters={'steps': 1000}, which the script reads",
    ),
    **_alike("recipe_overrides", "hyperparameters", "hyperparameters={'lr': 0.1}"),
    "algorithm_name": Keyword("image_uri", "AlgorithmEstimator(algorithm_name=…), for a registered algorithm"),
    "compiler_config": Keyword("command", "leave it out: the script compiles its model"),
    "is_deterministic": Keyword("", "leave it out: a step of a Pipeline decides by cache=False"),
    "training_mode": Keyword("instance_type", "instance_type='local' runs the job in Docker here"),
    "local_container_root": Keyword(
        "instance_type", "leave it out: job.download('model', 'model/') copies outputs"
    ),
    # Where it runs.
    **_alike(
        "additional_mpi_options distributions num_processes process_slots_per_host use_mpi", "job_type", _SEVERAL
    ),
    **_alike("reduction_server_container_uri reduction_server_machine_type", "job_type", _NO_REDUCTION),
    **_alike("reduction_server_replica_count", "job_type", _NO_REDUCTION),
    **_alike("instance_placement_config persistent_resource_id training_plan", "resource_id", _QUOTA),
    **_alike(
        "reservation_affinity_key reservation_affinity_type reservation_affinity_values", "resource_id", _QUOTA
    ),
    **_alike("enable_dashboard_access enable_remote_debug", "", _SHELL),
    "enable_infra_check": Keyword("", "leave it out: the service starts the instances"),
    "enable_session_tag_chaining": Keyword("", "leave it out: the access key decides what you may do"),
    "psc_interface_config": Keyword("user_vpc_config", _VPC),
    "tpu_topology": Keyword("instance_type", _GPU),
    "max_wait_duration": Keyword("max_run_time", _MAX_WAIT),
    "create_request_timeout": Keyword("session", "session=Session(retry=RetryPolicy(…))"),
    "disable_retries": Keyword("max_retries", "max_retries=0, which is the default"),
    # Data and models.
    **_alike("encryption_spec_key_name model_encryption_spec_key_name", "", _BUCKET_ENCRYPTION),
    **_alike("training_encryption_spec_key_name", "", _BUCKET_ENCRYPTION),
    **_alike("annotation_schema_uri bigquery_destination", "", _INPUTS),
    **_alike("predefined_split_column_name timestamp_split_column_name", "", _SAMPLES),
    **_alike("test_filter_split training_filter_split validation_filter_split", "", _SAMPLES),
    **_alike("test_fraction_split training_fraction_split validation_fraction_split", "", _SAMPLES),
    **_alike("checkpoint_path", "checkpoints_path", "checkpoints_path='oss://bucket/folder/'"),
    **_alike(
        "model_dir", "output_path", "leave it out: the job's folder is $PAI_OUTPUT_MODEL; output_path is its URI"
    ),
    **_alike("spark_event_logs_s3_uri", "", "outputs of run(): {'events': 'oss://bucket/events/'}"),
    **_alike(
        "explanation_metadata explanation_parameters is_default_version model_description model_id",
        "",
        _NOT_SERVED,
    ),
    **_alike(
        "model_instance_schema_uri model_labels model_package_config model_parameters_schema_uri", "", _NOT_SERVED
    ),
    **_alike("model_prediction_schema_uri model_serving_container_args", "", _NOT_SERVED),
    **_alike("model_serving_container_command model_serving_container_health_route", "", _NOT_SERVED),
    **_alike("model_serving_container_environment_variables model_serving_container_ports", "", _NOT_SERVED),
    **_alike("model_serving_container_predict_route model_version_aliases", "", _NOT_SERVED),
    **_alike("model_version_description parent_model", "", _NOT_SERVED),
    # Names and metrics.
    **_alike("enable_autolog enable_cloudwatch_metrics", "", _USE_REPORT),
    **_alike(
        "experiment experiment_run parent_job_name",
        "experiment_config",
        "experiment_config=Experiment.create('digits')",
    ),
    **_alike("job_name", "base_job_name", "base_job_name='digits', or fit(job_name='digits-1')"),
    # Searches.
    **_alike("base_tuning_job_name", "study", "study='digits', a folder below ~/.pai/studies"),
    **_alike("custom_job model_trainer", "search", _ESTIMATOR_FIRST),
    **_alike("autotune sampling_algorithm search_algorithm strategy", "sampler", _AUTO_SAMPLER),
    **_alike("early_termination_policy strategy_config", "pruner", "pruner='median' or 'asha'"),
    **_alike("parameter_spec search_space", "search", "search={'lr': LogUniform(1e-5, 1e-1)}"),
    **_alike(
        "measurement_selection metric_spec", "objective", "objective=Objective('loss', 'minimize', at='best')"
    ),
    **_alike("estimator_name include_cls_metadata model_trainer_name", "", _INTERNAL),
    **_alike("estimator_kwargs", "", "values of the Estimator itself"),
    "completion_criteria_config": Keyword("trials", "trials=20, timeout=3600"),
    "hyperparameters_to_keep_static": Keyword("search", "leave it out: what is not in search stays as it is"),
    "wait": Keyword("show", "leave it out: run() returns when the search has ended"),
    "warm_start_config": Keyword("warm_start", "warm_start='oss://bucket/study/'"),
    # Sessions.
    **_alike("api_transport request_metadata", "region_id", _API_TRANSPORT),
    **_alike("image_uri_region locations", "region_id", "region_id='cn-hangzhou'"),
    **_alike("sagemaker_client sagemaker_featurestore_runtime_client", "region_id", _INTERNAL),
    **_alike("sagemaker_metrics_client sagemaker_runtime_client", "region_id", _INTERNAL),
    **_alike("sagemaker_config settings", "region_id", _SETTINGS),
    **_alike(
        "experiment_description experiment_tensorboard", "region_id", "Experiment.create('digits') of pai_sdk"
    ),
    "api_endpoint": Keyword("endpoint", "endpoint='https://…', of a service of your own"),
    "api_key": Keyword("credentials", "a key in environment variables, or credentials=…"),
    "registry_name": Keyword("region_id", "leave it out: image_uri of an Estimator names the registry"),
}
"""Further keywords, too rare for the pages."""

KEYWORDS: Mapping[str, Keyword] = {
    **SELDOM,
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
    "goal": Keyword("direction", "direction='minimize' or 'maximize'", _direction_of),
    "max_concurrent_trials": Keyword("parallel", _PARALLEL, _same),
    "max_failed_trial_count": Keyword("max_failures", "max_failures=5", _same),
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
    "primary_metric": Keyword("objective", "objective='loss'", _same),
    "random_seed": Keyword("seed", "seed=1", _same),
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
        "sweep": "Tuner(estimator, {'lr': LogUniform(1e-5, 1e-1)}, 'loss', trials=20, parallel=4).run()",
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

_PLOT = "compare([job]).plot('loss') of pai_sdk"
_SUBMIT = "session.submit(plan)"

# Of no SDK: what people try first.
GUESSED_ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "JobList": {"to_pandas": "compare(jobs).to_pandas()", "wait": "gather(jobs)"},
    "JobSubmitter": {
        "download": "latest_job.download('model')",
        "metrics": "latest_job.metrics()",
        "status": "latest_job.status",
        "stop": "latest_job.stop()",
    },
    "MetricList": {
        "best": "compare(jobs).best('loss', mode='min')",
        "last": "[-1].value",
        "plot": _PLOT,
        "values": "[point.value for point in job.metrics('loss')]",
    },
    "Plan": dict.fromkeys(("fit", "run", "submit"), _SUBMIT),
    "TrainingJob": {
        "artifacts": "outputs, or download('model')",
        "checkpoints": "complete_checkpoints(job) of pai_sdk.runs, or download('checkpoints')",
        "config": "hyperparameters",
        "kill": "stop()",
        "model": "outputs['model'], or download('model')",
        "params": "hyperparameters",
        "plot": _PLOT,
        "summary": "metrics()",
        "terminate": "stop()",
        "url": "console_url",
    },
}
"""Attributes that no SDK has, by the name of our class, with what to use."""

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

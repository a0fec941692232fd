"""Rare attributes of SageMaker, Azure ML and Vertex AI with their replacements, beside those of `peer_names`.

`aliases` reads it. A test compares it with the attributes that the classes of these SDKs have.

Standard library only: it is loaded when an attribute is missing.
"""

from __future__ import annotations

from collections.abc import Mapping

from pai_sdk._core.names.hints import did_you_mean, nearest
from pai_sdk._core.names.peer_names import ATTRIBUTES, GUESSED_ATTRIBUTES, KEYWORDS, OF_JOBS
from pai_sdk.errors import notebook_traceback

_LATEST_RECORD = "latest_job.record, which has the times and the reason"
_NOT_SERVED = KEYWORDS["model_display_name"].instead
_RECORD = "record, which has all fields that the service sends"
_TRIALS = "run(), which returns the list of trials"
_USE_REPORT = KEYWORDS["rules"].instead

SELDOM_ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "JobSubmitter": {
        "error": "latest_job.reason_message",
        "get": "TrainingJob.get(job_id)",
        "get_vpc_config": "user_vpc_config",
        "has_failed": "latest_job.status.is_failure",
        "list": "TrainingJob.list()",
        "set_queue_settings": "priority=5, a number from 1 to 9",
        **dict.fromkeys(("end_time", "start_time"), _LATEST_RECORD),
        **dict.fromkeys(("job_spec", "get_run_args"), "plan(), which is the exact request"),
        **dict.fromkeys(("code_uri", "uploaded_code"), "plan(), which names the folder of the code"),
    },
    "EstimatorBase": {
        "code_channel_name": "source_dir; the code is not a channel",
        "compile_model": _NOT_SERVED,
        "component": "Pipeline: pipeline.step(estimator)",
        "create_input_data_channel": "fit({'train': 'oss://bucket/data/'})",
        "hyperparam_dict": "hyperparameters",
        "output_data": "latest_job.outputs",
        "parameters": "hyperparameters",
        "prepare_workflow_for_training": "Pipeline: pipeline.step(estimator)",
        "train_image": "image_uri",
        "with_infra_check_config": KEYWORDS["enable_infra_check"].instead,
        "with_remote_debug_config": KEYWORDS["services"].instead,
        "with_retry_strategy": KEYWORDS["max_retry_attempts"].instead,
        "with_session_chaining_config": KEYWORDS["enable_session_tag_chaining"].instead,
        **dict.fromkeys(("get_app_url", "tensorboard_app", "with_tensorboard_output_config"), "tensorboard()"),
        **dict.fromkeys(("deploy_instance_type", "delete_endpoint", "get_model"), _NOT_SERVED),
        **dict.fromkeys(("from_jumpstart_config", "from_recipe"), "RegisteredModel(…).get_estimator()"),
        **dict.fromkeys(("get_resolved_recipe", "is_nova_job"), "plan(), which is the exact request"),
        **dict.fromkeys(
            (
                *("collection_configs", "debugger_rule_configs", "debugger_rules", "disable_profiling"),
                *("enable_default_profiling", "latest_job_debugger_artifacts_path", "update_profiler"),
                *("latest_job_profiler_artifacts_path", "profiler_rule_configs", "profiler_rules"),
            ),
            _USE_REPORT,
        ),
        **dict.fromkeys(
            ("disable_remote_debug", "get_remote_debug_config", "get_session_chaining_config"),
            KEYWORDS["services"].instead,
        ),
        "from_local_script": "Estimator(source_dir='src', command='python train.py')",
        "wait_for_resource_creation": "wait()",
    },
    "TrainingJob": {
        "algorithm_specification": "algorithm_spec",
        "checkpoint_config": "output_path('checkpoints')",
        "enable_managed_spot_training": "compute_resource",
        "error": "reason_message",
        "final_metric_data_list": "metrics()",
        "from_local_script": "Estimator(source_dir='src', command='python train.py').fit()",
        "get_all": "TrainingJob.list()",
        "get_name": "name",
        "hyper_parameters": "hyperparameters",
        "input_data_config": "inputs",
        "output_data_config": "outputs",
        "services": "tensorboard(); `pai-sdk exec JOB` is a shell in a job on this machine",
        "wait_for_completion": "wait()",
        "wait_for_delete": "delete()",
        **dict.fromkeys(("compute", "resource_config"), "compute_resource"),
        **dict.fromkeys(("create", "run", "start_new", "submit"), "Estimator(…).fit()"),
        **dict.fromkeys(("mlflow_config", "mlflow_details", "progress_info"), "metrics()"),
        **dict.fromkeys(
            (
                *("auto_ml_job_arn", "billable_time_in_seconds", "billable_token_count", "creation_time", "dump"),
                *("debug_hook_config", "debug_rule_configurations", "debug_rule_evaluation_statuses", "end_time"),
                *("enable_inter_container_traffic_encryption", "enable_network_isolation", "environment", "type"),
                *("experiment_name", "get_train_args", "infra_check_config", "job_spec", "labeling_job_arn"),
                *(
                    "last_modified_time",
                    "log_files",
                    "model_package_config",
                    "network",
                    "output_model_package_arn",
                ),
                *("populate_inputs_decorator", "profiler_config", "profiler_rule_configurations", "start_time"),
                *("profiler_rule_evaluation_statuses", "profiling_status", "remote_debug_config", "role_arn"),
                *("retry_strategy", "rule_job_summary", "sagemaker_session", "secondary_status_transitions"),
                *(
                    "serverless_job_config",
                    "stopping_condition",
                    "tensor_board_output_config",
                    "training_end_time",
                ),
                *("training_start_time", "training_time_in_seconds", "tuning_job_arn", "vpc_config"),
                "warm_pool_status",
            ),
            _RECORD,
        ),
    },
    "Session": {
        "account_id": "leave it out: the access key decides the account",
        "get_caller_identity_arn": "leave it out: the access key decides what you may do",
        "config": "a parameter of Session for each setting",
        "settings": "a parameter of Session for each setting",
        "default_bucket_prefix": KEYWORDS["default_bucket_prefix"].instead,
        "process": "Processor(…).run()",
        "subscription_id": "workspace_id",
        "resource_group_name": "workspace_id",
        "train": "Estimator(…).fit()",
        "expand_role": "role_arn of an Estimator",
        "get_train_request": "Estimator(…).plan()",
        "update_training_job": "session.get_job(id).update(…)",
        "upload_string_as_file_body": "session.oss_bucket.put_object(key, text)",
        "read_s3_file": "session.oss_bucket.get_object(key).read()",
        "list_s3_files": "session.oss_bucket.list_objects(prefix)",
        **dict.fromkeys(("s3_client", "s3_resource"), "session.oss_bucket"),
        **dict.fromkeys(("tune", "create_tuning_job", "describe_tuning_job"), "Tuner(…).run()"),
        **dict.fromkeys(("stop_tuning_job", "wait_for_tuning_job"), "Tuner(…).run()"),
        **dict.fromkeys(("describe_processing_job", "was_processing_job_successful"), "session.get_job(id)"),
        "logs_for_processing_job": "session.get_job(id).logs()",
        "stop_processing_job": "session.get_job(id).stop()",
        "wait_for_processing_job": "session.get_job(id).wait()",
    },
    "Tuner": {
        "fit": "run({'train': 'oss://bucket/data/'})",
        "wait": "run(), which returns when the search has ended",
        "attach": "Tuner(…, study='digits'), which continues a study",
        "stop_tuning_job": "Ctrl-C in run(), or job.stop() of each job",
        **dict.fromkeys(
            ("best_estimator", "best_training_job"), "run().best, the best trial, with params and job_id"
        ),
        **dict.fromkeys(("analytics", "describe", "latest_tuning_job"), _TRIALS),
        **dict.fromkeys(("visualize_job", "visualize_jobs"), "run().to_pandas()"),
        **dict.fromkeys(
            ("identical_dataset_and_algorithm_tuner", "transfer_learning_tuner"), "Tuner(…, warm_start=…)"
        ),
        **dict.fromkeys(("delete_endpoint", "deploy"), _NOT_SERVED),
    },
}
"""Further attributes, too rare for the pages."""


def attribute_hint(kind: type, name: str) -> str | None:
    """Returns the replacement of an attribute of another SDK for a class of pai_sdk, or None."""
    for table in (ATTRIBUTES, GUESSED_ATTRIBUTES, SELDOM_ATTRIBUTES):
        for base in kind.__mro__:
            if hint := table.get(base.__name__, {}).get(name):
                return hint
    # A keyword argument is an attribute afterwards, by the name of our parameter.
    parameter, instead, _ = KEYWORDS.get(name, ("", "", None))
    fields = getattr(kind, "__dataclass_fields__", {})
    if parameter in fields:
        return parameter
    return instead if instead and not parameter and OF_JOBS in fields else None


def missing_attribute(owner: object, name: str) -> AttributeError:
    """Returns the error of an attribute that is misspelt or unknown, with the nearest name."""
    hint = did_you_mean(nearest(name, [each for each in dir(owner) if each[0] != "_"]))
    message = f"{type(owner).__name__!r} object has no attribute {name!r}{hint and f'; {hint}'}"
    # With a name and without an object, because Python would add the question itself; IPython does not.
    error = AttributeError(message, name=name)
    error._render_traceback_ = lambda: notebook_traceback(error)  # type: ignore[attr-defined]
    return error

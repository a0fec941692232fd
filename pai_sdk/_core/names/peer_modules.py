"""Modules that code for SageMaker, Azure ML and Vertex AI imports, each with what replaces it in this package.

Standard library only, and without imports: it is loaded with the package.
"""

from __future__ import annotations

_FRAMEWORK = "Estimator of pai_sdk, with an image of the framework: retrieve('PyTorch').image_uri of pai_sdk.jobs"
_ESTIMATOR = "Estimator of pai_sdk"
_INPUTS = "a dict of URIs or local paths: fit({'train': 'oss://bucket/data/'})"
_PROCESSOR = "Processor of pai_sdk, which runs a command on data"
_REPORT = "report() of pai_sdk in the job, and job.metrics() or compare() afterwards"

_INTERNAL = "the standard library; the module is internal to SageMaker"
_NOT_SERVED = "estimator.model_data(), the URI of the model; pai_sdk does not serve models"
_TUNER = "Tuner of pai_sdk; its ranges are in pai_sdk.tune"

MODULES = {
    **dict.fromkeys(("chainer", "mxnet", "pytorch", "rl", "sklearn", "tensorflow", "xgboost"), _FRAMEWORK),
    **dict.fromkeys(("analytics", "debugger", "experiments", "mlflow"), _REPORT),
    **dict.fromkeys(("batch_inference", "processing", "spark", "transformer", "wrangler"), _PROCESSOR),
    **dict.fromkeys(("hyperparameter_tuning", "parameter", "sweep", "tuner"), _TUNER),
    **dict.fromkeys(
        ("core", "entities", "model_trainer", "modules", "train", "training", "training_jobs"), _ESTIMATOR
    ),
    **dict.fromkeys(("algorithm", "amazon", "jumpstart"), "AlgorithmEstimator or RegisteredModel of pai_sdk"),
    **dict.fromkeys(("dataset_definition", "feature_store", "inputs"), _INPUTS),
    **dict.fromkeys(("clarify", "lineage"), "job.record, which has the inputs and outputs of a job"),
    **dict.fromkeys(
        ("constants", "metadata_properties", "operations"), "plain strings, such as instance_type='…'"
    ),
    **dict.fromkeys(("s3", "s3_utils"), "session.upload(path, uri) and session.download(uri, path)"),
    **dict.fromkeys(("dsl", "workflow"), "Pipeline of pai_sdk"),
    **dict.fromkeys(
        ("network", "vpc_utils"), "UserVpcConfig of pai_sdk.estimator: user_vpc_config of an Estimator"
    ),
    **dict.fromkeys(("model_card", "model_life_cycle", "model_metrics"), "RegisteredModel of pai_sdk.models"),
    **dict.fromkeys(
        ("distributed", "training_compiler"), "job_type and instance_count, with torchrun in the command"
    ),
    **dict.fromkeys(("model_uris", "script_uris", "hyperparameters", "metric_definitions"), _ESTIMATOR),
    **dict.fromkeys(
        (
            *(
                "async_inference",
                "base_deserializers",
                "base_predictor",
                "base_serializers",
                "container_base_model",
            ),
            *("deserializers", "djl_inference", "explainer", "inference_recommender", "model_monitor"),
            *("compute_resource_requirements", "drift_check_baselines", "multidatamodel", "payloads"),
            *("predictor_async", "resource_requirements", "serializer_utils", "serve", "serverless", "sparkml"),
            *("stabilityai", "accept_types", "content_types"),
        ),
        _NOT_SERVED,
    ),
    **dict.fromkeys(
        (
            *("amtviz", "apiutils", "collection", "deprecations", "enums", "environment_variables", "fw_registry"),
            *("fw_utils", "instance_types_gpu_info", "iterators", "lambda_helper", "partner_app"),
            *("session_settings", "telemetry", "user_agent", "utilities", "utils"),
        ),
        _INTERNAL,
    ),
    "automl": "Tuner of pai_sdk, which searches the hyperparameters of your own training",
    "aws_batch": "Session.embedded(), whose service queues jobs; priority of an Estimator",
    "exceptions": "pai_sdk.errors",
    "git_utils": "git_config of an Estimator",
    "identity": "a key of Alibaba Cloud in environment variables, or credentials of a Session",
    "image_uris": "retrieve('PyTorch').image_uri of pai_sdk.jobs, or any other image",
    "instance_group": "roles of an Estimator: {'Worker': Role(instance_count=2)}",
    "instance_types": "instance_type of an Estimator, such as 'ecs.c6.large'",
    "interactive_apps": "job.tensorboard(); `pai-sdk exec JOB` is a shell in a job on this machine",
    "local": "instance_type='local', which runs the job in Docker here; Session.embedded() needs no Docker",
    "logs": "job.logs() and job.wait()",
    "remote_function": "Estimator.from_function() of pai_sdk",
}

"""Modules of SageMaker that code for it imports, each with what replaces it in this package.

Standard library only, and without imports: it is loaded with the package.
"""

from __future__ import annotations

_FRAMEWORK = "Estimator of pai_sdk, with an image of the framework: retrieve('PyTorch').image_uri of pai_sdk.jobs"
_RANGES = "Tuner of pai_sdk; its ranges are in pai_sdk.tune"
_ESTIMATOR = "Estimator of pai_sdk"
_REPORT = "report() of pai_sdk in the job, and job.metrics() or compare() afterwards"

MODULES = {
    **dict.fromkeys(("chainer", "mxnet", "pytorch", "sklearn", "tensorflow", "xgboost"), _FRAMEWORK),
    **dict.fromkeys(("analytics", "debugger", "experiments"), _REPORT),
    **dict.fromkeys(("processing", "spark", "transformer"), "Processor of pai_sdk, which runs a command on data"),
    **dict.fromkeys(("parameter", "tuner"), _RANGES),
    **dict.fromkeys(("modules", "train"), _ESTIMATOR),
    "image_uris": "retrieve('PyTorch').image_uri of pai_sdk.jobs, or any other image",
    "inputs": "a dict of URIs or local paths: fit({'train': 'oss://bucket/data/'})",
    "local": "instance_type='local', which runs the job in Docker here; Session.embedded() needs no Docker",
    "remote_function": "Estimator.from_function() of pai_sdk",
    "s3": "session.upload(path, uri) and session.download(uri, path)",
    "workflow": "Pipeline of pai_sdk",
}

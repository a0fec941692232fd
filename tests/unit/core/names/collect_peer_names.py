"""Prints the names that users of SageMaker, Azure ML and Vertex AI know, as peer_sdk_names.json has them.

    pip download --no-deps --dest FOLDER sagemaker==1.72.1   # likewise each of the releases below
    python -m tests.unit.core.names.collect_peer_names FOLDER > peer_sdk_names.json

The packages are read and not installed. The file has facts only: the keyword arguments of calls that ours stand
for, the names of modules that training programs import, and the modules.
"""

from __future__ import annotations

import ast
import json
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

_V1, _V2 = "sagemaker-1.72.1", "sagemaker-2.257.7"
_V3, _V3_CORE = "sagemaker_train-1.27.0", "sagemaker_core-2.27.0"
_AZURE, _VERTEX = "azure_ai_ml-1.35.2", "google_cloud_aiplatform-2.7.0"
_ROOTS = {
    _V1: "sagemaker-1.72.1/src/sagemaker/",
    _V2: "sagemaker/",
    _V3: "sagemaker/train/",
    _V3_CORE: "sagemaker/core/",
    _AZURE: "azure/ai/ml/",
    _VERTEX: "google/cloud/aiplatform/",
}

_INIT = "__init__"
_FRAMEWORKS = {
    "chainer": "Chainer",
    "mxnet": "MXNet",
    "pytorch": "PyTorch",
    "rl": "RLEstimator",
    "sklearn": "SKLearn",
    "tensorflow": "TensorFlow",
    "xgboost": "XGBoost",
}
_TRAININGS = ("CustomTrainingJob", "CustomContainerTrainingJob", "CustomPythonPackageTrainingJob")
# Our call, the release, and the module, class and method there.
_CALLS = (
    *(
        ("Estimator", v, "estimator", name, _INIT)
        for v in (_V1, _V2)
        for name in ("EstimatorBase", "Estimator", "Framework")
    ),
    *(
        ("Estimator", v, f"{module}/estimator", name, _INIT)
        for v in (_V1, _V2)
        for module, name in _FRAMEWORKS.items()
    ),
    ("Estimator", _V2, "huggingface/estimator", "HuggingFace", _INIT),
    ("Estimator", _V3, "model_trainer", "ModelTrainer", _INIT),
    ("Estimator", _AZURE, "entities/_builders/command_func", "command", ""),
    *(("Estimator", _VERTEX, "training_jobs", name, _INIT) for name in _TRAININGS),
    *(("fit", _VERTEX, "training_jobs", name, "run") for name in _TRAININGS),
    ("Estimator", _VERTEX, "jobs", "CustomJob", _INIT),
    ("Estimator", _VERTEX, "jobs", "CustomJob", "from_local_script"),
    ("fit", _VERTEX, "jobs", "CustomJob", "run"),
    *(("fit", v, "estimator", "EstimatorBase", "fit") for v in (_V1, _V2)),
    ("fit", _V3, "model_trainer", "ModelTrainer", "train"),
    *(
        (ours, v, "processing", name, method)
        for v in (_V1, _V2)
        for name in ("Processor", "ScriptProcessor")
        for ours, method in (("Processor", _INIT), ("run", "run"))
    ),
    *(
        (ours, _V2, module, name, method)
        for module, name in (
            ("processing", "FrameworkProcessor"),
            ("spark/processing", "PySparkProcessor"),
            ("sklearn/processing", "SKLearnProcessor"),
        )
        for ours, method in (("Processor", _INIT), ("run", "run"))
    ),
    *(("Tuner", v, "tuner", "HyperparameterTuner", _INIT) for v in (_V1, _V2, _V3)),
    ("Tuner", _VERTEX, "jobs", "HyperparameterTuningJob", _INIT),
    ("Tuner", _AZURE, "entities/_builders/command", "Command", "sweep"),
    *(("Tuner.run", v, "tuner", "HyperparameterTuner", "fit") for v in (_V1, _V2)),
    *(("Session", v, "session", "Session", _INIT) for v in (_V1, _V2)),
    ("Session", _AZURE, "_ml_client", "MLClient", _INIT),
    ("Session", _VERTEX, "initializer", "_Config", "init"),
)
# Modules of training programs: ours are named as theirs, below the package.
_MODULES = (
    *(
        (v, name)
        for v in (_V1, _V2)
        for name in (
            *("", "analytics", "debugger", "debugger/debugger", "estimator", "inputs", "model", "network"),
            *("parameter", "pipeline", "predictor", "processing", "s3", "session", "transformer", "tuner"),
            *(f"{each}/estimator" for each in _FRAMEWORKS),
        )
    ),
    *((_V2, name) for name in ("debugger/profiler_config", "experiments/run", "huggingface/estimator")),
    *((_V2, name) for name in ("instance_group", "serializers", "spark/processing")),
    *((_V2, name) for name in ("workflow/parameters", "workflow/steps")),
    *((_V3, name) for name in ("distributed", "model_trainer", "tuner")),
    (_V3_CORE, "training/configs"),
    *((_AZURE, name) for name in ("", "dsl", "entities", "sweep")),
    *((_VERTEX, name) for name in ("", "hyperparameter_tuning")),
)
# Our class, and one of theirs whose public methods and attributes users of it try.
_CLASSES = (
    *(
        ("Estimator", v, "estimator", name)
        for v in (_V1, _V2)
        for name in ("EstimatorBase", "Estimator", "Framework")
    ),
    ("Estimator", _V3, "model_trainer", "ModelTrainer"),
    ("Estimator", _AZURE, "entities/_builders/command", "Command"),
    ("Estimator", _VERTEX, "jobs", "CustomJob"),
    *(("Processor", v, "processing", name) for v in (_V1, _V2) for name in ("Processor", "ScriptProcessor")),
    ("TrainingJob", _V2, "estimator", "_TrainingJob"),
    ("TrainingJob", _V2, "job", "_Job"),
    ("TrainingJob", _V3_CORE, "resources", "TrainingJob"),
    ("TrainingJob", _AZURE, "entities/_job/job", "Job"),
    ("TrainingJob", _VERTEX, "jobs", "CustomJob"),
)
# Of `azure.ai.ml.entities`, which has 230 names: those from the modules of jobs.
_OF_JOBS = ("_job", "_builders", "_resource_configuration", "_schedule")


def main() -> None:
    """Collects and prints."""
    sources = {name: _sources(Path(sys.argv[1]), name) for name in _ROOTS}
    keywords: dict[str, set[str]] = {}
    for ours, release, module, name, method in _CALLS:
        keywords.setdefault(ours, set()).update(_parameters(_tree(sources[release], module), name, method))
    names: dict[str, set[str]] = {}
    for release, module in _MODULES:
        if tree := _tree(sources[release], module):
            names.setdefault(module.partition("/")[0], set()).update(_names(tree))
    attributes: dict[str, set[str]] = {}
    for ours, release, module, name in _CLASSES:
        attributes.setdefault(ours, set()).update(_attributes(_tree(sources[release], module), name))
    top = {path.partition("/")[0].removesuffix(".py") for release in (_V1, _V2) for path in sources[release]}
    result = {
        "attributes": {cls: sorted(found) for cls, found in sorted(attributes.items())},
        "keywords": {call: sorted(found) for call, found in sorted(keywords.items())},
        "names": {module: sorted(found) for module, found in sorted(names.items())},
        "modules": sorted(name for name in top if name.isidentifier() and not name.startswith("_")),
    }
    json.dump(result, sys.stdout, indent=1)
    sys.stdout.write("\n")


def _sources(folder: Path, release: str) -> dict[str, str]:
    """Returns the modules of a release by their paths below its package."""
    (archive,) = folder.glob(f"{release}*")
    root = _ROOTS[release]
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            paths = [path for path in wheel.namelist() if path.startswith(root) and path.endswith(".py")]
            return {path.removeprefix(root): wheel.read(path).decode() for path in paths}
    with tarfile.open(archive) as sdist:
        files = ((each.name, sdist.extractfile(each)) for each in sdist.getmembers() if each.isfile())
        return {
            path.removeprefix(root): file.read().decode()
            for path, file in files
            if path.startswith(root) and path.endswith(".py") and file is not None
        }


def _tree(sources: dict[str, str], module: str) -> ast.Module | None:
    paths = (f"{module}.py", f"{module}/__init__.py".lstrip("/"))
    return next((ast.parse(sources[path]) for path in paths if path in sources), None)


def _parameters(tree: ast.Module | None, name: str, method: str) -> Iterator[str]:
    """Yields the public parameters of a method, or the fields of a dataclass."""
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef) and node.name == name:
            yield from _of_function(node)
        if not isinstance(node, ast.ClassDef) or (node.name != name):
            continue
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == method]
        for each in methods:
            yield from _of_function(each)
        if method == _INIT and not methods:
            yield from _of_fields(node)


def _attributes(tree: ast.Module | None, name: str) -> Iterator[str]:
    """Yields the public methods and properties of a class, its fields, and what `__init__` sets."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name] if tree else []
    for cls in classes:
        yield from _of_fields(cls)
        for method in cls.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith(("_", "model_post_init")):
                yield method.name
            elif isinstance(method, ast.FunctionDef) and method.name == _INIT:
                stored = [node for node in ast.walk(method) if isinstance(node, ast.Attribute)]
                yield from (
                    node.attr
                    for node in stored
                    if isinstance(node.ctx, ast.Store)
                    and not node.attr.startswith("_")
                    and ast.unparse(node.value) == "self"
                )


def _of_function(function: ast.FunctionDef) -> Iterator[str]:
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if each.arg not in ("self", "cls") and not each.arg.startswith("_"):
            yield each.arg


def _of_fields(cls: ast.ClassDef) -> Iterator[str]:
    for node in cls.body:
        is_field = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if is_field and node.target.id.islower() and not node.target.id.startswith(("_", "config_mgr")):
            yield node.target.id


def _names(tree: ast.Module) -> Iterator[str]:
    """Yields `__all__` of a module, of entities those of jobs only, or its public classes and functions."""
    listed = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "__all__"
    ]
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    homes = {each.asname or each.name: node.module or "" for node in imports for each in node.names}
    if not listed:
        defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        reexported = [name for name, home in homes.items() if home.startswith("sagemaker.")]
        is_package = not defined
        yield from (name for name in (reexported if is_package else defined) if not name.startswith("_"))
        return
    is_of_entities = any(home.startswith("_builders") for home in homes.values())
    for name in listed[0]:
        if not is_of_entities or homes.get(name, "").startswith(_OF_JOBS):
            yield name


if __name__ == "__main__":
    main()

"""Names of alipai that pai_sdk does not have, each with what replaces it.

One list for the errors of the modules that are left out, for `pai-sdk migrate`, and for the table of
docs/alipai-names.md. A test compares it with the names of alipai.
"""

from __future__ import annotations

_API = "session.algorithms, session.experiments, session.images, session.workspaces, session.get_job(id), …"
_NO_GET = "TrainingJob.get(id), or what fit() and run() return; the constructor is not for users"

INSTEAD = {
    "pai.api": _API,
    "pai.api.code_source": "git_config= of an Estimator",
    "pai.api.dataset": "the id of a data set, 'd-…', as an input; the console manages data sets",
    "pai.api.job": "Estimator and Processor with api='dlc'; session.get_job(id)",
    "pai.api.model": "RegisteredModel and session.models, for models with a training spec",
    "pai.api.tensorboard": "TensorBoard.create(uri), or job.tensorboard()",
    "pai.api.training_job": (
        "session.get_job(id), session.list_jobs(), job.logs(), job.metrics(), job.stop(), job.delete()"
    ),
    "pai.api.experiment": "session.experiments, or Experiment",
    "pai.api.image": "session.images, or pai_sdk.jobs.retrieve()",
    "pai.api.workspace": "session.workspaces.list(), .get(id)",
    "pai.common.consts.DEFAULT_NETWORK_TYPE": "os.environ.get('PAI_NETWORK_TYPE')",
    "pai.common.consts.PAI_VPC_ENDPOINT": "Session(network='VPC')",
    "pai.common.docker_utils": "instance_type='local' runs a job in Docker; for other uses, the package docker",
    "pai.common.git_utils": "git_config= of an Estimator",
    "pai.common.logging": "logging.getLogger('pai_sdk').setLevel('DEBUG')",
    "pai.common.oss_utils.CredentialProviderWrapper": "session.oss_bucket, or session.get_oss_bucket(name)",
    "pai.common.utils.is_dataset_id": "text.startswith('d-')",
    "pai.common.utils.is_local_run_instance_type": "instance_type in ('local', 'local_gpu')",
    "pai.common.utils.is_nas_uri": "uri.startswith('nas://')",
    "pai.common.utils.is_odps_table_uri": "uri.startswith('odps://')",
    "pai.common.utils.is_notebook": "'ipykernel' in sys.modules",
    "pai.common.utils.is_package_available": "importlib.util.find_spec(name) is not None",
    "pai.common.utils.make_list_resource_iterator": "the lists of pai_sdk are iterators over all pages already",
    "pai.common.utils.parse_oss_uri": "OssUriObj(uri) of pai_sdk.common.oss_utils",
    "pai.common.utils.print_table": "print each row, or use rich.table.Table",
    "pai.common.utils.retry": "tenacity.retry; requests of pai_sdk are retried: Session(retry=RetryPolicy(…))",
    "pai.common.utils.to_semantic_version": "packaging.version.Version(text)",
    "pai.common.yaml_utils": "the package yaml; `pai-sdk run` reads job files",
    "pai.dataset": "give the id of a data set, 'd-…', or its URI as an input",
    "pai.dsw": "the console creates DSW notebooks; in a notebook, Session() finds its region and workspace",
    "pai.estimator.EstimatorBase.create_model": "estimator.model_data() is the URI of the model",
    "pai.estimator.EstimatorBase.deploy": "estimator.model_data() is the URI of the model; deploy it with PAI-EAS",
    "pai.estimator.EstimatorBase.checkpoints_path": "checkpoints_path of an Estimator",
    "pai.estimator.EstimatorBase(": "a subclass of JobSubmitter is a dataclass: its fields are its parameters",
    "pai.estimator.HyperParameterType": "a string: 'Int', 'Float', 'String', 'Boolean'",
    "pai.experiment.Experiment(": "Experiment.create(name), Experiment.get(id) or Experiment.get_by_name(name)",
    "pai.experiment.Experiment.session": "session= is given to create() and get()",
    "pai.huggingface": "Estimator with an image of retrieve('Transformers'), or requirements=['transformers']",
    "pai.image.ImageScope.to_image_label": "image_scope= of retrieve() and list_images() takes the scope itself",
    "pai.job.TrainingJob(": _NO_GET,
    "pai.job._local_training_job": "TrainingJob, also for local jobs: fit() returns it",
    "pai.job._training_job.BaseAPIModel": "every description has to_dict()",
    "pai.job._training_job.DEFAULT_CHECKPOINT_CHANNEL_NAME": (
        "DefaultChannelName.CHECKPOINT of pai_sdk.common.consts"
    ),
    "pai.job._training_job.DEFAULT_OUTPUT_MODEL_CHANNEL_NAME": "DefaultChannelName.MODEL of pai_sdk.common.consts",
    "pai.job._training_job.DEFAULT_TENSORBOARD_CHANNEL_NAME": (
        "DefaultChannelName.TENSORBOARD of pai_sdk.common.consts"
    ),
    "pai.job._training_job.DatasetConfig.dataset_name": "dataset_id; the console shows it",
    "pai.job._training_job.DatasetConfig.name": "the channel's name is the key in inputs={…}",
    "pai.job._training_job.TrainingJob(": _NO_GET,
    "pai.job._training_job.as_oss_dir_uri": "OssUriObj(uri).get_dir_uri()",
    "pai.libs": f"{_API}; for all actions of a service, its own package, such as alibabacloud_paistudio20220112",
    "pai.model.ModelRecipe.MODEL_CHANNEL_NAME": "the text 'model'",
    "pai.model.RegisteredModel.get_eval_processor": "model.model_recipe('evaluation'), then run(inputs)",
    "pai.model.RegisteredModel.get_evaluation_inputs": "model.model_recipe('evaluation').default_inputs",
    "pai.model.RegisteredModel.get_training_spec": "its attribute training_spec, or get_recipe_spec()",
    "pai.model._model": "pai_sdk.model",
    "pai.model._model_recipe": "pai_sdk.model",
    "pai.modelscope": "Estimator with an image of retrieve('ModelScope'), or requirements=['modelscope']",
    "pai.pipeline": "pai_sdk.Pipeline: pipeline.step(estimator, inputs={'data': other.outputs.model})",
    "pai.session.ENV_PAI_CONFIG_PATH": "the variable is PAI_CONFIG_PATH, as before",
    "pai.session.load_default_config_file": "pai_sdk.config.load_settings(), or `pai-sdk config`",
    "pai.tensorboard.TensorBoard(": "TensorBoard.create(uri), or job.tensorboard()",
    "pai.tensorboard.TensorBoard.session": "session= is given to create()",
    "pai.toolkit.config": "python -m pai_sdk.toolkit.config, or `pai-sdk config set`",
    "pai.toolkit.helper": "python -m pai_sdk.toolkit.config, or `pai-sdk config set`",
    "pai.tracking": "Experiment and report(); job.record has the inputs and outputs of a job",
}
"""By the dotted name in alipai; a name holds for what is below it, `name(` for the parameters of its call."""

ABSENT = {
    "pai.common.utils": "an internal helper of alipai; use the standard library",
    "pai.api.lineage": "there is no lineage service; job.record has the inputs and outputs of a job",
    "pai.api.service": "serving is not part of pai_sdk; use PAI-EAS",
    "pai.common.consts.ALIYUN_ALL_REGION_ID_LIST": "pai_sdk finds misspelt regions itself",
    "pai.job.AlgorithmSpec.supported_channel_types": "PAI does not use it",
    "pai.job._training_job.AlgorithmSpec.supported_channel_types": "PAI does not use it",
    "pai.session.INNER_REGION_IDS": "session.is_inner is always False",
    "pai.tensorboard.TensorBoard.create(": "the URI of the event files is enough",
}
"""Names without a replacement, likewise, each with the reason."""

CALLED_OTHERWISE = ("pai.pipeline.Pipeline", "pai.pipeline.PipelineRun")
"""Names that pai_sdk has for the same purpose, and that are called in another way."""


def instead_of(name: str) -> str:
    """Returns the replacement of a name of alipai; empty if pai_sdk has the name, or does not know it."""
    key = key_of(name)
    return INSTEAD.get(key) or ABSENT.get(key, "")


def key_of(name: str) -> str:
    """Returns the entry of `INSTEAD` or `ABSENT` for a name of alipai; empty if none matches."""
    fitting = [
        key
        for key in (*INSTEAD, *ABSENT)
        if name == key or name.startswith(key if key.endswith("(") else f"{key}.")
    ]
    return max(fitting, key=len, default="")

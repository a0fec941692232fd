"""Names that programs for SageMaker, Azure ML and Vertex AI import, with their replacements.

`lazy_names` and the stand-ins of modules read it. A test compares it with the pages "Coming from …", and with the
names that the packages of these SDKs have.

Standard library only: it is loaded when an import fails.
"""

from __future__ import annotations

from collections.abc import Mapping

from pai_sdk._core.names.peer_names import KEYWORDS
from pai_sdk.errors import NotOfferedAttributeError, NotOfferedError


def _of(keyword: str) -> str:
    """Returns the replacement of a keyword argument."""
    return KEYWORDS[keyword].instead


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
_ALGORITHM = "AlgorithmEstimator(algorithm_name=…) for a registered algorithm, or Estimator with your own code"
_AUTOML = "leave it out: there is no AutoML; Tuner searches the hyperparameters of your own training"
_COMPUTE_RESOURCE = "leave it out: instance_type or resource_id of an Estimator says where it runs"
_FOLDERS = "a URI or a local path: fit({'train': 'oss://bucket/data/'}); session.upload(path, uri) moves files"
_INTERNAL = "leave it out: it is internal to that SDK"
_LINEAGE = "job.record, which has the inputs and outputs of a job"
_MODELS = "session.models, or RegisteredModel of pai_sdk.models"
_SCRIPT_DATA = "leave it out: the script reads and shuffles its files; {'train': 'oss://bucket/data/'} gives them"
_PIPELINE_VALUE = "pipeline.parameter('lr', float)"
_PRUNER = "Tuner(…, pruner='median') or Tuner(…, pruner='asha')"
_REGISTRY_KEY = "leave it out: the key of a registry belongs to the service"
_SAMPLER = "Tuner(…, sampler=…), which takes a sampler of Optuna"
_SCHEDULE = "session.schedules.create('nightly', '0 3 * * *', estimator.plan()), for a service of your own"
_SEARCH_END = "Tuner(estimator, search, 'loss', trials=20, timeout=3600)"
_SERVED = "leave it out: pai_sdk does not serve models; estimator.model_data() is the URI of the model"
_SPARK = (
    "Processor(image_uri=…, command='spark-submit prepare.py', source_dir='src'), with an image that has Spark"
)
_TENSORBOARD = "write to $PAI_OUTPUT_TENSORBOARD; job.tensorboard() shows it"
_TRANSFER = "session.upload(path, uri) and session.download(uri, path)"

NAMES: Mapping[str, str] = {
    # SageMaker, v2 and v3
    "CategoricalParameter": _RANGE,
    "ContinuousParameter": _RANGE,
    "DebuggerHookConfig": _of("rules"),
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
    "Networking": f"Estimator({_of('networking')})",
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
    "init": "setup_default_session(region_id=…, workspace_id=…, oss_bucket_name=…); a job is a run by itself",
    "log": _REPORT,
    "log_metrics": _REPORT,
    "log_params": "Estimator(hyperparameters={'lr': 0.1}); the job keeps them",
    "start_run": _REPORT,
}
"""Names to import from the package: `from pai_sdk import TrainingInput`."""

_NAMES_BY_REPLACEMENT: Mapping[str, str] = {
    _ALGORITHM: "FactorizationMachines IPInsights KMeans KNN LDA LinearLearner NTM Object2Vec PCA RandomCutForest",
    _AUTOML: (
        "AutoML AutoMLDataChannel AutoMLForecastingTrainingJob AutoMLImageClassificationConfig "
        "AutoMLImageTrainingJob AutoMLInput AutoMLJob AutoMLJobV2 AutoMLTabularConfig "
        "AutoMLTabularTrainingJob AutoMLTextClassificationConfig AutoMLTextGenerationConfig "
        "AutoMLTextTrainingJob AutoMLTimeSeriesForecastingConfig AutoMLV2 AutoMLVideoTrainingJob "
        "CandidateEstimator CandidateStep CustomModelFineTuningJob LocalAutoMLDataChannel "
        "SequenceToSequencePlusForecastingTrainingJob TemporalFusionTransformerForecastingTrainingJob "
        "TimeSeriesDenseEncoderForecastingTrainingJob"
    ),
    _COMPUTE_RESOURCE: "ComputeConfiguration HyperPodCompute JobResources load_compute ResourceConfiguration",
    _COMPUTE_OF_ESTIMATOR: "InstanceConfig",
    _TORCHRUN: "DistributedConfig SMP",
    _ESTIMATOR: "Command CommandJob Job ParameterizedCommand load_component",
    _FRAMEWORK: "Chainer Framework MXNet RLEstimator RLFramework RLToolkit get_xgboost_image_uri load_environment",
    _INPUT: "DataSource DatasetSource FileSystemDataSource InputPort ModelAccessConfig HubAccessConfig s3_input",
    _FOLDERS: (
        "FeatureStoreOutput ImageDataset TabularDataset TextDataset TimeSeriesDataset VideoDataset Feature "
        "Featurestore EntityType load_data load_datastore load_feature_set load_feature_store "
        "load_feature_store_entity load_index"
    ),
    _INTERNAL: (
        "BaseConfig DEBUGGER_FLAG FileType LogState SparkConfigUtils explain framework_name gapic "
        "generate_default_sagemaker_bucket_name get_log_events_for_inference_recommender get_pipeline_df "
        "helpers retrieve_default retrieve_options update_args warn_v2_deprecation PartnerAppAuthProvider "
        "load_capability_host load_marketplace_subscription"
    ),
    _LINEAGE: "Artifact ArtifactAnalytics Execution start_execution",
    _MODELS: (
        "FileSource MetricsSource ModelEvaluation ModelMetrics ModelRegistry get_experiment_model "
        "load_model log_model save_model"
    ),
    _SCRIPT_DATA: "ShuffleConfig",
    _PIPELINE_VALUE: "Parameter ParameterInteger ParameterString ParameterTypeEnum",
    _PRUNER: "BanditPolicy HyperbandStrategyConfig MedianStoppingPolicy StrategyConfig TruncationSelectionPolicy",
    _RANGE: (
        "CategoricalParameterSpec DiscreteParameterSpec DoubleParameterSpec IntegerParameterSpec "
        "LogNormal Normal ParameterRange QLogNormal QLogUniform QNormal QUniform Randint "
        "hyperparameter_tuning"
    ),
    _REGISTRY_KEY: "TrainingImageConfig TrainingRepositoryAuthConfig",
    _REPORT: (
        "AnalyticsMetricsBase ExperimentAnalytics ExperimentRun Run SortByType SortOrderType autolog "
        "end_run get_experiment_df list_runs load_run log log_classification_metrics "
        "log_time_series_metrics"
    ),
    _SAMPLER: "BayesianSamplingAlgorithm GridSamplingAlgorithm RandomSamplingAlgorithm SamplingAlgorithm",
    _SCHEDULE: (
        "CronTrigger JobSchedule PipelineJobSchedule RecurrencePattern RecurrenceTrigger Schedule "
        "ScheduleTriggerResult"
    ),
    _SEARCH_END: "SweepJobLimits TuningJobCompletionCriteriaConfig",
    _SERVED: (
        "BatchDataCaptureConfig BytesDeserializer ContainerBaseModel CreateModelInput CreateModelStep "
        "DeploymentResourcePool Endpoint FactorizationMachinesModel FactorizationMachinesPredictor "
        "FrameworkModel IPInsightsModel IPInsightsPredictor KMeansModel KMeansPredictor KNNModel "
        "KNNPredictor LDAModel LDAPredictor LinearLearnerModel LinearLearnerPredictor MatchingEngineIndex "
        "MatchingEngineIndexEndpoint Model ModelBase ModelContainer ModelDeploymentMonitoringJob "
        "ModelPackage NTMModel NTMPredictor Object2VecModel PCAModel PCAPredictor PipelineModel Predictor "
        "PrivateEndpoint RandomCutForestModel RandomCutForestPredictor RealTimePredictor StreamDeserializer "
        "StringDeserializer container_def get_add_model_package_inference_args "
        "get_create_model_package_request get_model_package_args get_update_model_package_inference_args "
        "load_batch_deployment load_batch_endpoint load_deployment_template load_model_package "
        "load_online_deployment load_online_endpoint load_serverless_endpoint pipeline_container_def "
        "production_variant"
    ),
    _PROCESSOR: "BatchPredictionJob Parallel ParallelTask ProcessingJob RunArgs TransformInput Transformer",
    _SPARK: "Spark SparkJarProcessor SparkJob SparkJobEntry SparkJobEntryType SparkResourceConfiguration spark",
    _STEPS: "PipelineJob PipelineJobSettings Step StepTypeEnum TransformStep TuningStep",
    _TENSORBOARD: (
        "TensorBoardJobService Tensorboard TensorboardExperiment TensorboardRun TensorboardTimeSeries "
        "end_upload_tb_log start_upload_tb_log upload_tb_log"
    ),
    _TRANSFER: "S3Downloader S3Uploader parse_s3_url",
    _TUNER: "Sweep SweepJob",
    _of("rules"): (
        "CollectionConfig DataloaderProfilingConfig DetailedProfilerProcessingJobConfig "
        "DetailedProfilingConfig FrameworkProfile HorovodProfilingConfig Profiler ProfilerRule "
        "PythonProfiler PythonProfilingConfig Rule RuleBase SMDataParallelProfilingConfig cProfileTimer "
        "get_default_profiler_processing_job get_rule_container_image_uri rule_configs"
    ),
    _of(
        "services"
    ): "JobService JupyterLabJobService RemoteDebugConfig ServiceInstance SshJobService VsCodeJobService",
    _of("max_retry_attempts"): "ConfigurableRetryStep RetrySettings RetryStrategy",
    f"Estimator({_of('networking')})": "NetworkConfig",
    _of("workspace_name"): "load_workspace load_connection load_registry load_workspace_connection",
    "pipeline.step(estimator, cache=False), or pipeline.run(cache=False)": "CacheConfig",
    "Estimator(max_run_time=3600)": "CommandJobLimits",
    "the list that Tuner(…).run() returns; compare() shows jobs side by side": "HyperparameterTuningJobAnalytics",
    "leave it out: the service starts the instances": "InfraCheckConfig",
    "Estimator(roles={'Worker': Role(instance_count=2), 'Evaluator': Role()})": "InstanceGroup",
    "instance_type='local' runs the job in Docker here; Session.embedded() needs no Docker": "Mode",
    "Estimator(priority=5), a number from 1 to 9": "QueueSettings",
    "instance_count=2, and a command that starts Ray at MASTER_ADDR, for RANK 0 first": "RayDistribution",
    "leave it out: the access key decides what you may do": "SessionChainingConfig",
    "a dict: labels={'team': 'vision'}": "Tag",
    "Tuner(…, warm_start=…)": (
        "WarmStartConfig WarmStartTypes create_identical_dataset_and_algorithm_tuner "
        "create_transfer_learning_tuner"
    ),
    "Estimator(checkpoints_path='oss://bucket/folder/')": "CheckpointConfig",
}

OTHER_NAMES: Mapping[str, str] = {
    name: instead for instead, names in _NAMES_BY_REPLACEMENT.items() for name in names.split()
}
"""Further names, too rare for the pages."""


def replacement_of(name: str) -> str:
    """Returns what replaces a name of another SDK; empty for other names."""
    return NAMES.get(name) or OTHER_NAMES.get(name, "")


def check_name(name: str, package: str = "pai_sdk", *, is_import: bool = True) -> None:
    """Refuses a name of another SDK that is imported from a package of pai_sdk, or is an attribute of it."""
    if instead := replacement_of(name):
        # Outside an import it is an AttributeError too, so that `hasattr` and `getattr` with a default work.
        raise (NotOfferedError(name, instead) if is_import else NotOfferedAttributeError(package, name, instead))

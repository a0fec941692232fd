# The public names, each with its home; `pai_sdk._core.names.lazy_names` reads this file, and type checkers do.

from pai_sdk import callbacks as callbacks
from pai_sdk import checkpoints as checkpoints
from pai_sdk import common as common  # type: ignore[attr-defined]
from pai_sdk import config as config
from pai_sdk import credentials as credentials
from pai_sdk import dataset as dataset  # type: ignore[attr-defined]
from pai_sdk import dsw as dsw  # type: ignore[attr-defined]
from pai_sdk import errors as errors
from pai_sdk import estimator as estimator  # type: ignore[attr-defined]
from pai_sdk import exception as exception  # type: ignore[attr-defined]
from pai_sdk import executors as executors
from pai_sdk import experiment as experiment  # type: ignore[attr-defined]
from pai_sdk import functions as functions
from pai_sdk import huggingface as huggingface  # type: ignore[attr-defined]
from pai_sdk import image as image  # type: ignore[attr-defined]
from pai_sdk import job as job  # type: ignore[attr-defined]
from pai_sdk import jobs as jobs
from pai_sdk import libs as libs  # type: ignore[attr-defined]
from pai_sdk import model as model  # type: ignore[attr-defined]
from pai_sdk import models as models
from pai_sdk import modelscope as modelscope  # type: ignore[attr-defined]
from pai_sdk import pipeline as pipeline
from pai_sdk import predictor as predictor  # type: ignore[attr-defined]
from pai_sdk import processor as processor  # type: ignore[attr-defined]
from pai_sdk import reports as reports
from pai_sdk import runs as runs
from pai_sdk import serializers as serializers  # type: ignore[attr-defined]
from pai_sdk import service as service
from pai_sdk import session as session
from pai_sdk import storage as storage
from pai_sdk import tensorboard as tensorboard  # type: ignore[attr-defined]
from pai_sdk import toolkit as toolkit  # type: ignore[attr-defined]
from pai_sdk import trace as trace
from pai_sdk import tracking as tracking  # type: ignore[attr-defined]
from pai_sdk import tune as tune
from pai_sdk import version as version  # type: ignore[attr-defined]
from pai_sdk._client.backend.base import Plan as Plan
from pai_sdk._client.display.base import Display as Display
from pai_sdk._client.display.base import Silent as Silent
from pai_sdk._client.experiment import Experiment as Experiment
from pai_sdk._client.image import ImageInfo as ImageInfo
from pai_sdk._client.job.compare_jobs import JobComparison as JobComparison
from pai_sdk._client.job.compare_jobs import compare as compare
from pai_sdk._client.job.follow.polling import FollowPolicy as FollowPolicy
from pai_sdk._client.job.gather import as_completed as as_completed
from pai_sdk._client.job.gather import gather as gather
from pai_sdk._client.job.gather import gather_async as gather_async
from pai_sdk._client.job.result_lists import MetricList as MetricList
from pai_sdk._client.job.result_lists import ResultList as ResultList
from pai_sdk._client.job.training_job import TrainingJob as TrainingJob
from pai_sdk._client.model.recipe import ModelRecipe as ModelRecipe  # imports requests
from pai_sdk._client.model.recipe import ModelTrainingRecipe as ModelTrainingRecipe  # imports requests
from pai_sdk._client.model.registered_model import RegisteredModel as RegisteredModel  # imports requests
from pai_sdk._client.pipeline.pipeline import Pipeline as Pipeline
from pai_sdk._client.pipeline.pipeline_run import PipelineRun as PipelineRun
from pai_sdk._client.session import Session as Session
from pai_sdk._client.session import get_default_session as get_default_session
from pai_sdk._client.session import setup_default_session as setup_default_session
from pai_sdk._client.submit.algorithm_estimator import AlgorithmEstimator as AlgorithmEstimator
from pai_sdk._client.submit.estimator import Estimator as Estimator
from pai_sdk._client.submit.function_estimator import remote as remote
from pai_sdk._client.submit.job_file import JobFile as JobFile
from pai_sdk._client.submit.parameters import JobParameters as JobParameters
from pai_sdk._client.submit.parameters import Role as Role
from pai_sdk._client.submit.processor import Processor as Processor
from pai_sdk._client.submit.run_all import run_all as run_all
from pai_sdk._client.tensorboard import TensorBoard as TensorBoard
from pai_sdk._client.tune.objectives import Objective as Objective
from pai_sdk._client.tune.population import PopulationBased as PopulationBased
from pai_sdk._client.tune.space import Choice as Choice
from pai_sdk._client.tune.space import IntRange as IntRange
from pai_sdk._client.tune.space import LogUniform as LogUniform
from pai_sdk._client.tune.space import Uniform as Uniform
from pai_sdk._client.tune.trials import Trial as Trial
from pai_sdk._client.tune.trials import TrialList as TrialList
from pai_sdk._client.tune.tuner import Tuner as Tuner
from pai_sdk._core.retry import RetryPolicy as RetryPolicy
from pai_sdk._core.version import __version__ as __version__
from pai_sdk._data.notify.targets import DingTalk as DingTalk
from pai_sdk._data.notify.targets import Feishu as Feishu
from pai_sdk._data.notify.targets import Webhook as Webhook
from pai_sdk._data.notify.targets import WeCom as WeCom
from pai_sdk._data.rules.rules import DiskNearlyFull as DiskNearlyFull
from pai_sdk._data.rules.rules import IdleCpu as IdleCpu
from pai_sdk._data.rules.rules import IdleGpu as IdleGpu
from pai_sdk._data.rules.rules import LateEnd as LateEnd
from pai_sdk._data.rules.rules import MetricJump as MetricJump
from pai_sdk._data.rules.rules import NonFiniteMetric as NonFiniteMetric
from pai_sdk._data.rules.rules import NoProgress as NoProgress
from pai_sdk._data.rules.rules import OddRank as OddRank
from pai_sdk._data.rules.rules import ProcessStopped as ProcessStopped
from pai_sdk._data.rules.rules import Rule as Rule
from pai_sdk._data.run.events.records import EventRecord as EventRecord
from pai_sdk._data.run.events.records import ScalarEvent as ScalarEvent
from pai_sdk._data.run.events.series import Point as Point  # imports numpy
from pai_sdk._data.run.events.series import Series as Series  # imports numpy
from pai_sdk._data.run.events.series import TagSummary as TagSummary  # imports numpy
from pai_sdk._data.run.events.writer import EventWriter as EventWriter
from pai_sdk._data.run.functions.function_run import FunctionRun as FunctionRun
from pai_sdk._data.run.functions.runner import FunctionRunner as FunctionRunner
from pai_sdk._data.run.plots.drawing import Curve as Curve  # imports numpy
from pai_sdk._data.run.plots.figures import Comparison as Comparison  # imports numpy
from pai_sdk._data.run.report.callbacks import KerasReportCallback as KerasReportCallback
from pai_sdk._data.run.report.callbacks import LightGBMReportCallback as LightGBMReportCallback
from pai_sdk._data.run.report.callbacks import LightningReportCallback as LightningReportCallback
from pai_sdk._data.run.report.callbacks import TransformersReportCallback as TransformersReportCallback
from pai_sdk._data.run.report.callbacks import XGBoostReportCallback as XGBoostReportCallback
from pai_sdk._data.run.report.checkpoints import Checkpoint as Checkpoint
from pai_sdk._data.run.report.checkpoints import CheckpointConfig as CheckpointConfig
from pai_sdk._data.run.report.preemption import get_preemption_info as get_preemption_info
from pai_sdk._data.run.report.report_session import ReportSession as ReportSession
from pai_sdk._data.run.report.report_session import StopTraining as StopTraining
from pai_sdk._data.run.report.session import checkpoint_dir as checkpoint_dir
from pai_sdk._data.run.report.session import get_all_reported_checkpoints as get_all_reported_checkpoints
from pai_sdk._data.run.report.session import get_checkpoint as get_checkpoint
from pai_sdk._data.run.report.session import get_context as get_context
from pai_sdk._data.run.report.session import is_session_enabled as is_session_enabled
from pai_sdk._data.run.report.session import report as report
from pai_sdk._data.run.report.session import set_checkpoint_config as set_checkpoint_config
from pai_sdk._data.run.store.run_store import DbfsRunStore as DbfsRunStore
from pai_sdk._data.run.store.run_store import HdfsRunStore as HdfsRunStore
from pai_sdk._data.run.store.run_store import LocalRunStore as LocalRunStore
from pai_sdk._data.run.store.run_store import RunStore as RunStore
from pai_sdk._data.run.watch.manager import RunManager as RunManager
from pai_sdk._data.run.watch.records import Change as Change
from pai_sdk._data.run.watch.records import RunBrief as RunBrief
from pai_sdk._data.run.watch.records import RunRecord as RunRecord
from pai_sdk._data.run.watch.watched_run import WatchedRun as WatchedRun  # imports numpy
from pai_sdk._data.storage.base import Store as Store
from pai_sdk._data.storage.oss.client import OssClient as OssClient  # imports oss2
from pai_sdk._data.storage.stores.fsspec import FsspecStore as FsspecStore
from pai_sdk._data.storage.stores.local import LocalStore as LocalStore
from pai_sdk._data.storage.stores.oss import OssStore as OssStore
from pai_sdk._data.storage.sync.dir_sync import DirSync as DirSync
from pai_sdk._data.storage.sync.dir_sync import SyncReport as SyncReport
from pai_sdk._data.storage.uri import OssUri as OssUri
from pai_sdk._data.trace.hook import TraceHook as TraceHook
from pai_sdk._data.trace.odps import OdpsSink as OdpsSink
from pai_sdk._data.trace.parquet import ParquetSink as ParquetSink
from pai_sdk._data.trace.recis import TraceToOdpsHook as TraceToOdpsHook
from pai_sdk._data.trace.trace_data import TraceData as TraceData
from pai_sdk._data.trace.trace_writer import TraceWriter as TraceWriter
from pai_sdk._host.execution.docker.options import LocalOptions as LocalOptions
from pai_sdk._host.execution.process.executor import ProcessExecutor as ProcessExecutor
from pai_sdk._wire.pai.compute import AssignNodeSpec as AssignNodeSpec
from pai_sdk._wire.pai.compute import ComputeResource as ComputeResource
from pai_sdk._wire.pai.compute import CredentialConfig as CredentialConfig
from pai_sdk._wire.pai.compute import ExperimentConfig as ExperimentConfig
from pai_sdk._wire.pai.compute import InstanceSpec as InstanceSpec
from pai_sdk._wire.pai.compute import SpotSpec as SpotSpec
from pai_sdk._wire.pai.compute import UserVpcConfig as UserVpcConfig
from pai_sdk._wire.pai.filesystems import CpfsFileSystemInput as CpfsFileSystemInput
from pai_sdk._wire.pai.filesystems import FileSystemInput as FileSystemInput
from pai_sdk._wire.pai.record import JobRecord as JobRecord
from pai_sdk._wire.pai.record import LogLine as LogLine
from pai_sdk._wire.pai.record import MetricPoint as MetricPoint
from pai_sdk._wire.pai.secret_values import Secret as Secret
from pai_sdk._wire.pai.spec import Channel as Channel
from pai_sdk._wire.pai.spec import DatasetConfig as DatasetConfig
from pai_sdk._wire.pai.status import JobStatus as JobStatus
from pai_sdk.alipai.mindinsight.event_data import DataManager as DataManager
from pai_sdk.alipai.mindinsight.summary_watcher import SummaryWatcher as SummaryWatcher  # imports numpy
from pai_sdk.alipai.mindinsight.train_jobs import CachedTrainJob as CachedTrainJob
from pai_sdk.alipai.mindinsight.train_jobs import TrainJob as TrainJob
from pai_sdk.alipai.pai.huggingface.estimator import HuggingFaceEstimator as HuggingFaceEstimator
from pai_sdk.alipai.pai.modelscope.estimator import ModelScopeEstimator as ModelScopeEstimator
from pai_sdk.errors import ApiError as ApiError
from pai_sdk.errors import AuthenticationError as AuthenticationError
from pai_sdk.errors import BadAnswerError as BadAnswerError  # until 0.2
from pai_sdk.errors import CheckpointError as CheckpointError
from pai_sdk.errors import CodeError as CodeError
from pai_sdk.errors import ConflictError as ConflictError
from pai_sdk.errors import ConnectionFailedError as ConnectionFailedError
from pai_sdk.errors import CredentialsError as CredentialsError
from pai_sdk.errors import CredentialsRenewalError as CredentialsRenewalError
from pai_sdk.errors import EngineNotFoundError as EngineNotFoundError
from pai_sdk.errors import FileChangedError as FileChangedError
from pai_sdk.errors import FileNameError as FileNameError
from pai_sdk.errors import FunctionError as FunctionError
from pai_sdk.errors import FunctionFinished as FunctionFinished
from pai_sdk.errors import ImageError as ImageError
from pai_sdk.errors import ImageLookupError as ImageLookupError
from pai_sdk.errors import InUseError as InUseError
from pai_sdk.errors import InvalidInputError as InvalidInputError
from pai_sdk.errors import InvalidRequestError as InvalidRequestError
from pai_sdk.errors import InvalidResponseError as InvalidResponseError
from pai_sdk.errors import JobError as JobError
from pai_sdk.errors import JobFailed as JobFailed
from pai_sdk.errors import JobsFailed as JobsFailed
from pai_sdk.errors import JobStopped as JobStopped
from pai_sdk.errors import LocalRunError as LocalRunError
from pai_sdk.errors import MissingExtraError as MissingExtraError
from pai_sdk.errors import NameTakenError as NameTakenError  # until 0.2
from pai_sdk.errors import NotFoundError as NotFoundError
from pai_sdk.errors import NotOfferedError as NotOfferedError
from pai_sdk.errors import ObjectNotFoundError as ObjectNotFoundError
from pai_sdk.errors import PaiError as PaiError
from pai_sdk.errors import PathConflictError as PathConflictError
from pai_sdk.errors import PermissionDeniedError as PermissionDeniedError
from pai_sdk.errors import PipelineFailed as PipelineFailed
from pai_sdk.errors import PipelineStopped as PipelineStopped
from pai_sdk.errors import Problem as Problem
from pai_sdk.errors import RemoteTraceback as RemoteTraceback
from pai_sdk.errors import RepeatedRequestError as RepeatedRequestError
from pai_sdk.errors import RunNotFoundError as RunNotFoundError
from pai_sdk.errors import ServerError as ServerError
from pai_sdk.errors import ServiceFaultError as ServiceFaultError  # until 0.2
from pai_sdk.errors import ServiceStartError as ServiceStartError
from pai_sdk.errors import SettingsError as SettingsError
from pai_sdk.errors import StorageError as StorageError
from pai_sdk.errors import SyncError as SyncError
from pai_sdk.errors import ThrottledError as ThrottledError
from pai_sdk.errors import TraceError as TraceError
from pai_sdk.errors import TransferError as TransferError
from pai_sdk.errors import TuningFailed as TuningFailed
from pai_sdk.errors import UnreachableStorageError as UnreachableStorageError
from pai_sdk.errors import UntrustedEndpointError as UntrustedEndpointError
from pai_sdk.errors import UserQuotaError as UserQuotaError
from pai_sdk.errors import WaitTimeoutError as WaitTimeoutError
from pai_sdk.errors import WrongCallError as WrongCallError

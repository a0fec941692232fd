from pai_sdk._data.run.report.callbacks import KerasReportCallback as KerasReportCallback
from pai_sdk._data.run.report.callbacks import LightGBMReportCallback as LightGBMReportCallback
from pai_sdk._data.run.report.callbacks import LightningReportCallback as LightningReportCallback
from pai_sdk._data.run.report.callbacks import TransformersReportCallback as TransformersReportCallback
from pai_sdk._data.run.report.callbacks import XGBoostReportCallback as XGBoostReportCallback

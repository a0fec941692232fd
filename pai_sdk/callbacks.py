"""Callbacks for Lightning, Transformers, Keras, XGBoost and LightGBM, which report metrics and checkpoints."""

from pai_sdk.run.callbacks import (
    KerasReportCallback,
    LightGBMReportCallback,
    LightningReportCallback,
    TransformersReportCallback,
    XGBoostReportCallback,
)

__all__ = [
    "KerasReportCallback",
    "LightGBMReportCallback",
    "LightningReportCallback",
    "TransformersReportCallback",
    "XGBoostReportCallback",
]

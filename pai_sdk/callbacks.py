"""Callbacks for Lightning, Transformers, Keras, XGBoost and LightGBM, which report metrics and checkpoints."""

from pai_sdk._data.run.report.callbacks import *  # noqa: F403
from pai_sdk._data.run.report.callbacks import __all__ as __all__

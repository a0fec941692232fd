"""alipai's predictors: left out. The names can be imported, and their use names the replacement."""

from pai_sdk.alipai.unsupported import unsupported_names

__getattr__ = unsupported_names(
    __name__,
    (
        "AsyncPredictor",
        "AsyncTask",
        "EndpointType",
        "LocalPredictor",
        "Predictor",
        "PredictorBase",
        "RawResponse",
        "ServiceStatus",
        "ServiceType",
        "WaitConfig",
    ),
    "call the service by HTTP: requests.post(url, data=…, headers={'Authorization': token}), "
    "where PAI-EAS shows URL and token",
)

"""alipai's serializers: left out. The names can be imported, and their use names the replacement."""

from pai_sdk.alipai.unsupported import unsupported_names

__getattr__ = unsupported_names(
    __name__,
    (
        "BytesSerializer",
        "JsonSerializer",
        "PyTorchSerializer",
        "SerializerBase",
        "TensorFlowIOSpec",
        "TensorFlowSerializer",
    ),
    "they belong to predictors. Encode requests yourself, such as with json.dumps(…)",
)

"""alipai's serializers: left out. The names can be imported, and their use names the replacement."""

from pai_sdk.compat.left_out import names_left_out

__getattr__ = names_left_out(
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

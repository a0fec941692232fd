"""pai_sdk: describe a training job once, run it on Alibaba Cloud PAI, in Docker, or on a service of your own."""

__version__ = "0.1.0"

"""PAI's public images by region, as data: the catalogue of a service that has none of its own.

It is a selection of what PAI's documentation and public code name; a service with ListImages knows more. Images
made for serving only are not among them: for serving, those for training are listed, which have the framework.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

OFFICIAL = "system.official=true"
SCOPE_LABELS = {
    "training": "system.supported.dlc=true",
    "inference": "system.supported.eas=true",
    "develop": "system.supported.dsw=true",
}
"""The label of the images that are made for a purpose: training jobs, serving, notebooks."""

_REGION = re.compile(r"[a-z]{2}-[a-z0-9-]+")
_USUAL_REGION = "cn-hangzhou"  # for a service of one's own, whose region is no region of Alibaba Cloud
_DLC = "registry.{region}.aliyuncs.com/pai-dlc"
_DSW = "dsw-registry-vpc.{region}.cr.aliyuncs.com/pai"

_HUB = "docker.io/huggingface"  # not PAI's, but those of Hugging Face itself

# Registry, repository and tag, framework and its version, version of Python; the newest of a framework first.
_IMAGES = (
    (_DSW, "pytorch-training:2.7-gpu-py312-cu128-ubuntu24.04", "PyTorch", "2.7", "3.12"),
    (_DLC, "pytorch-training:2.4.0-gpu-py3.10-cu12.5-ngc24.06-ubuntu22.04", "PyTorch", "2.4.0", "3.10"),
    (_DLC, "pytorch-training:2.1.0-gpu-py3.10-cu12.2-ngc23.09-ubuntu22.04", "PyTorch", "2.1.0", "3.10"),
    (_DLC, "pytorch-training:1.12-gpu-py39-cu113-ubuntu20.04", "PyTorch", "1.12", "3.9"),
    (_DSW, "pytorch-training:1.12-cpu-py39-ubuntu20.04", "PyTorch", "1.12", "3.9"),
    (_DLC, "pytorch-training:1.8PAI-gpu-py36-cu101-ubuntu18.04", "PyTorch", "1.8PAI", "3.6"),
    (_DLC, "pytorch-training:1.6.0-gpu-py37-cu101-ubuntu18.04", "PyTorch", "1.6.0", "3.7"),
    (_DLC, "tensorflow-training:2.3-gpu-py36-cu101-ubuntu18.04", "TensorFlow", "2.3", "3.6"),
    (_DLC, "tensorflow-training:2.3-cpu-py36-ubuntu18.04", "TensorFlow", "2.3", "3.6"),
    (_DLC, "tensorflow-training:1.15-cpu-py36-ubuntu18.04", "TensorFlow", "1.15", "3.6"),
    (_DLC, "tensorflow-training:1.12.2PAI-cpu-py27-ubuntu16.04", "TensorFlow", "1.12.2PAI", "2.7"),
    (_DLC, "xgboost-training:1.6.0-cpu-py36-ubuntu18.04", "XGBoost", "1.6.0", "3.6"),
    (_DSW, "modelscope:1.34.0-pytorch2.9.1-gpu-py311-cu124-ubuntu22.04", "ModelScope", "1.34.0", "3.11"),
    (_DSW, "modelscope:1.34.0-pytorch2.3.1-cpu-py311-ubuntu22.04", "ModelScope", "1.34.0", "3.11"),
    (_DSW, "modelscope:1.31.0-pytorch2.8.0-gpu-py311-cu124-ubuntu22.04", "ModelScope", "1.31.0", "3.11"),
    (
        _DSW,
        "modelscope:1.28.0-pytorch2.3.1tensorflow2.16.1-gpu-py311-cu121-ubuntu22.04",
        "ModelScope",
        "1.28.0",
        "3.11",
    ),
    (_HUB, "transformers-pytorch-gpu:4.41.3", "Transformers", "4.41.3", ""),
    (_HUB, "transformers-pytorch-gpu:4.35.2", "Transformers", "4.35.2", ""),
    (_HUB, "transformers-pytorch-cpu:4.18.0", "Transformers", "4.18.0", ""),
)


@dataclass(frozen=True)
class CatalogueImage:
    """An image of the catalogue, with the labels that PAI sets; `image_id` is its id in ListImages."""

    image_id: str
    name: str  # repository and tag
    image_uri: str
    labels: dict[str, str]


def public_images(region_id: str | None) -> Iterator[CatalogueImage]:
    """Yields the public images, with the registry of a region; the newest of each framework first."""
    # What is no region of Alibaba Cloud means `cn-hangzhou`.
    region = region_id if region_id and _REGION.fullmatch(region_id) else _USUAL_REGION
    for number, (registry, name, framework, version, python) in enumerate(_IMAGES):
        labels = dict(
            label.split("=")
            for label in (
                OFFICIAL,
                *SCOPE_LABELS.values(),  # an image that trains with a framework can also serve and be explored
                f"system.chipType={'GPU' if '-gpu' in name else 'CPU'}",
                f"system.framework.{framework}={version}",
                f"system.pythonVersion={python}",
                f"system.origin={'Community' if registry == _HUB else 'PAI'}",
            )
            if not label.endswith("=")
        )
        yield CatalogueImage(f"image-public{number:03}", name, f"{registry.format(region=region)}/{name}", labels)

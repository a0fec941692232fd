"""Suggests the requirement that provides a Python module missing in a job."""

from __future__ import annotations

import sys

# Modules whose distribution has another name. Packages of a namespace are listed by their full name.
_DISTRIBUTIONS = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "absl": "absl-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "community": "python-louvain",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "gitpython",
    "github": "pygithub",
    "google.cloud.storage": "google-cloud-storage",
    "google.protobuf": "protobuf",
    "hydra": "hydra-core",
    "igraph": "python-igraph",
    "imblearn": "imbalanced-learn",
    "jose": "python-jose",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "mysql": "mysql-connector-python",
    "MySQLdb": "mysqlclient",
    "nacl": "pynacl",
    "odps": "pyodps",
    "pkg_resources": "setuptools",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "pynvml": "nvidia-ml-py",
    "ruamel": "ruamel.yaml",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "slugify": "python-slugify",
    "socks": "pysocks",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
_REMOVED_MODULES = {"distutils": "setuptools", "imp": "", "asynchat": "pyasynchat", "asyncore": "pyasyncore"}


def missing_module_hint(module: str) -> str:
    """Returns a hint on how to provide a missing module."""
    top, *submodules = module.split(".")
    if top in _REMOVED_MODULES:
        replacement = _REMOVED_MODULES[top]
        install_hint = f"add requirements=['{replacement}'], or " if replacement else ""
        return f"newer versions of Python have no {top}: {install_hint}use an image with an older Python"
    if top in sys.stdlib_module_names:
        return f"the module {module} belongs to the standard library, but is missing from the Python of this image"
    distribution = _DISTRIBUTIONS.get(module) or _DISTRIBUTIONS.get(top)
    if submodules and module not in _DISTRIBUTIONS:
        # Python names the package alone if that is missing too.
        return f"the installed {distribution or top} has no {module}: require a version that has it"
    if distribution:
        return (
            f"the module {module} comes with {distribution}: add requirements=['{distribution}'], or a line in "
            "requirements.txt"
        )
    name = module.replace("_", "-")
    return (
        f"if {module} is a package, add requirements=['{name}'], or a line in requirements.txt; if it is a file "
        "of yours, it has to be in source_dir"
    )

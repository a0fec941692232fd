"""Frames of a stack, and whether they belong to the user, to a library, or to a collective operation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

# Files of Python and of installed packages, by a part of their path.
_LIBRARY_FILE = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d(?:\.\d+)?[/\\]|^<frozen |\.so(?:\.\d+)*$"
    r"|[/\\]pai_sdk[/\\]_\w+[/\\]|^<(?:__array_function__ internals|decorator-gen-\d+)>"
)
# Modules that wait for the other ranks. Not those that wrap the forward pass or launch a training, such as DDP
# and torchrun: with these, ranks that compute would seem to wait.
_COLLECTIVE_FILE = re.compile(
    r"[/\\]torch(?:_npu)?[/\\]distributed[/\\](?:distributed_c10d|rendezvous|c10d_logger|_functional_collectives\w*"
    r"|nn[/\\]functional|collective_utils)\.py$"
    r"|[/\\]horovod[/\\](?!runner|spark|ray)\w+[/\\](?:mpi_ops|functions|optimizer|basics)\.py$"
    r"|[/\\]deepspeed[/\\]comm[/\\]|[/\\]mindspore[/\\]communication[/\\]|[/\\]byteps[/\\]\w+[/\\]ops\.py$"
    r"|[/\\]jax[/\\](?:_src[/\\]distributed|experimental[/\\]multihost_utils)\.py$"
    r"|[/\\]paddle[/\\]distributed[/\\](?:communication|collective)"
    r"|[/\\]torch[/\\]cuda[/\\]__init__\.py$"
    r"|lib(?:nccl|gloo|mpi|hccl)[\w.-]*\.so"
)
_CUDA_FILE = re.compile(r"[/\\]torch[/\\]cuda[/\\]__init__\.py$")
_COLLECTIVE_NAME = re.compile(
    r"(?:^|[._])(?:(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)(?:$|[._])"
    r"|(?:broadcast|barrier|synchronize|rendezvous|init_process_group|sync_?(?:params|grads|gradients)"
    r"|wait_for_(?:everyone|all|peers|others))$)",
    re.IGNORECASE,
)
_NATIVE_COLLECTIVE = re.compile(r"\b(?:c10d::|gloo::|nccl[A-Z]|MPI_|hccl[A-Z]|horovod::)")
_DEBUGGER_FILE = re.compile(
    r"[/\\](?:pdb|bdb)\.py$|[/\\]report[/\\]debugger(?:_\w+)?\.py$"
    r"|[/\\](?:debugpy|pydevd|_pydevd_bundle|_pydevd_frame_eval)[/\\]"
)
# Cells of notebooks and `python -c` have names such as `<string>`, `<stdin>` and `<ipython-input-1>`.
_SOURCES = (".py", ".pyw", ".pyx", ".ipynb", ">")


class Frame(NamedTuple):
    """One call of a stack."""

    function: str
    file: str = ""
    line: int = 0

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Frame:
        """Returns a frame from its fields in a response; wrong types become empty values."""
        line = values.get("line")
        return cls(
            str(values.get("function") or "?"),
            str(values.get("file") or ""),
            line if isinstance(line, int) and not isinstance(line, bool) else 0,
        )

    @property
    def is_native(self) -> bool:
        """Whether the frame is a function of a compiled library."""
        return not self.file.endswith(_SOURCES)

    @property
    def is_user(self) -> bool:
        """Whether the frame is code of the user: neither Python's, nor of a package, nor native."""
        return not self.is_native and not _LIBRARY_FILE.search(self.file)

    @property
    def is_collective(self) -> bool:
        """Whether the frame waits for other ranks: a collective operation of a library or of the user."""
        if _COLLECTIVE_FILE.search(self.file):
            return not _CUDA_FILE.search(self.file) or self.function.endswith("synchronize")
        if self.is_user:
            return bool(_COLLECTIVE_NAME.search(self.function))
        return bool(_NATIVE_COLLECTIVE.search(self.function))

    @property
    def is_debugger(self) -> bool:
        """Whether the frame belongs to a debugger."""
        return bool(_DEBUGGER_FILE.search(self.file))

    def __str__(self) -> str:
        file = self.file.replace("\\", "/").rpartition("/")[2]
        location = f"{file}:{self.line}" if self.line else file
        return f"{self.function} ({location})" if location else self.function

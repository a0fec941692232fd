"""Advises what to do about a failed job, by the end of its log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pai_sdk._core.reasons import missing_module
from pai_sdk._data.logs.missing_modules import missing_module_hint
from pai_sdk._data.logs.missing_variables import JobChannels, missing_file_hint, missing_variable_hint
from pai_sdk._data.logs.tracebacks import is_launcher_error

_LAST_LINES = 14  # of a log without a traceback
# Later entries are more general, so the order matters. Groups of a pattern are parts of its text.
_HINTS = [
    (
        r"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|ALLOC_FAILED|NPU out of memory"
        r"|\btorch\.(?:cuda\.)?OutOfMemoryError|ResourceExhaustedError.*OOM"
        r"|RESOURCE_EXHAUSTED: (?:Out of memory while|Failed to allocate request)",
        "the memory of the GPU ran out: use a smaller batch, bfloat16 or gradient checkpointing, or an instance "
        "type with larger GPUs",
    ),
    (
        r"Bus error|out of shared memory|insufficient shared memory"
        r"|No space left on device.*/dev/shm|/dev/shm.*No space",
        "the shared memory of the instance ran out: use fewer workers of the data loader, or raise "
        "instance_spec.shared_memory",
    ),
    (
        r"\bMemoryError\b|Unable to allocate \S+ \S+ for an array|can't allocate memory|Cannot allocate memory"
        r"|std::bad_alloc|java\.lang\.OutOfMemoryError|killed by signal: Killed"
        r"|RESOURCE_EXHAUSTED: Out of memory allocating"  # JAX on CPUs
        r"|^\s*(?:\S+: line \d+: .*)?Killed\b",
        "the memory of the instance ran out: read the data in parts, use a smaller batch or fewer data loaders, "
        "or an instance type with more memory",
    ),
    (
        r"No space left on device|Disk quota exceeded",
        "a disk is full: keep fewer checkpoints, remove temporary files, or free some space on it",
    ),
    (
        r"device-side assert triggered",
        "an index is out of range on the GPU, often a label that is not below the number of classes: with "
        "environments={{'CUDA_LAUNCH_BLOCKING': '1'}} the traceback shows the line",
    ),
    (
        r"no kernel image is available for execution",
        "the framework in the image has no code for this GPU: use an image with a version that supports it",
    ),
    (
        r"No CUDA GPUs are available|Found no NVIDIA driver|not compiled with CUDA enabled|no CUDA-capable device"
        r"|CUDA driver version is insufficient",
        "the program found no GPU that it can use: choose an instance type with a GPU, and an image with CUDA and "
        "a framework that was built for it",
    ),
    (
        r"(?P<library>lib[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "the image has no {library}: use an image that has it, or install the package of the system with it",
    ),
    (
        r"numpy\.dtype size changed|compiled using NumPy 1\.x|numpy\.core\.multiarray failed to import",
        "a package was built for another version of NumPy: add requirements=['numpy<2'], or require a newer "
        "version of that package",
    ),
    (
        r"[Ww]atchdog caught collective operation timeout"
        r"|(?:NCCL|nccl|Gloo|gloo|DistStoreError|TCPStore).*[Tt]imed? ?out"
        r"|[Tt]imed? ?out.*(?:NCCL|nccl|[Bb]arrier|store\b)",
        "some ranks waited too long for another one: look for it in the logs of the other instances; if no rank "
        "failed, raise the timeout of init_process_group",
    ),
    (
        r"\bnccl\w+Error|NCCL (?:error|failure)|DistBackendError",
        "the GPUs lost the connection to each other: look for the rank that failed first in the logs of the other "
        "instances; environments={{'NCCL_DEBUG': 'INFO'}} writes more into the log",
    ),
    (
        r"[Aa]ddress already in use",
        "another process uses this port: choose another one, such as torchrun's --rdzv-endpoint=localhost:0",
    ),
    (
        r"(?:\\r'?|\r|\^M): (?:(?:command )?not found|bad interpreter)|can't open file '.*\\r'",
        "the script has Windows line endings (CRLF): save it with LF",
    ),
    (
        r": (?:line )?\d+: (?P<program>[\w./+-]+): (?:command )?not found"
        r"|exec: \"(?P<executable>[^\"]+)\": executable file not found",
        "there is no program {program}: check its spelling, or add the package that provides it to the "
        "requirements or the image",
    ),
    (
        r": (?:line )?\d+: (?P<program>[\w./+-]+): Permission denied"
        r"|exec: \"(?P<executable>[^\"]+)\": permission denied",
        "the file {program} is not executable: start it by its interpreter (python train.py, sh run.sh), or set "
        "its x bit",
    ),
    (
        r"PermissionError: .*?'(?P<path>[^']+)'|Read-only file system",
        "the job may not write there: write results to $PAI_OUTPUT_MODEL or another output, and temporary files "
        "to /tmp",
    ),
    (
        r"python[\d.]*: can't open file '?(?P<path>[^':]+)",
        "the file is not in the code of the job: the command runs in source_dir, so give a path relative to it",
    ),
    (
        r"ErrImagePull|ImagePullBackOff|pull access denied|manifest (?:for .* )?(?:not found|unknown)"
        r"|repository does not exist|[Ff]ailed to pull image",
        "the image cannot be pulled: check its name and tag, and whether the instances can reach and may read its "
        "registry (a private image needs the VPC of its registry, or docker login)",
    ),
    (
        r"GatedRepoError|401 Client Error.*huggingface\.co|Access to model .* is restricted",
        "the model is restricted: accept its terms on huggingface.co, and set HF_TOKEN in environments",
    ),
    (
        r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch",
        "the store refused the access key of the job: check its rights for this bucket, or the role of the job",
    ),
    (
        r"Temporary failure in name resolution|Name or service not known|Network is unreachable"
        r"|Max retries exceeded|couldn't connect to 'https?://",
        "the job did not reach a server: pass the data or the model as an input, or give the job access to that "
        "network",
    ),
    (
        r"unrecognized arguments: |the following arguments are required: |No such option: ",
        "the options in the command are not those of the program: correct the command; its hyperparameters are in "
        "$PAI_USER_ARGS",
    ),
]
_PATTERNS = [(re.compile(pattern), hint) for pattern, hint in _HINTS]


def log_advice(cause: str, lines: Sequence[str], job: JobChannels, *messages: str) -> str:
    """Returns what to do about an error; empty for errors without advice.

    `cause` is the exception of the log; without one, the last lines are searched, and further messages.
    """
    has_cause = bool(cause) and not is_launcher_error(cause)
    searched = [cause] if has_cause else [*messages, *lines[-_LAST_LINES:], cause]
    if module := missing_module(searched):
        return missing_module_hint(module)
    hint = missing_variable_hint(cause, job) or missing_file_hint(cause, job)
    return hint or next((advice for line in reversed(searched) if (advice := _hint_of(line))), "")


def _hint_of(line: str) -> str:
    for pattern, hint in _PATTERNS:
        if match := pattern.search(line):
            groups = {name: value for name, value in match.groupdict().items() if value}
            return hint.format(**{"program": groups.get("executable", ""), **groups})
    return ""

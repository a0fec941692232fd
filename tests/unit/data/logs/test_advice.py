"""What to do about errors in logs."""

from __future__ import annotations

import pytest

from pai_sdk._core.reasons import disk_full_message, exit_reason, memory_limit_message, split_advice
from pai_sdk._data.logs.advice import log_advice
from pai_sdk._data.logs.tracebacks import find_traceback, root_cause
from pai_sdk._wire.requests import RecordedRequest

JOB = RecordedRequest.model_validate({"InputChannels": [{"Name": "train", "InputUri": "oss://b/train/"}]})
GPU, HOST, SHARED, DISK = "memory of the GPU", "memory of the instance", "shared_memory", "disk is full"
NCCL = "RuntimeError: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)"

# As torch 2.9 prints it below torchrun; earlier versions name PYTORCH_CUDA_ALLOC_CONF.
TORCH = """\
step 12 loss 2.31
[rank0]: Traceback (most recent call last):
[rank0]:   File "/ml/usercode/train.py", line 40, in <module>
[rank0]:     loss.backward()
[rank0]:   File "/usr/lib/python3.12/site-packages/torch/_tensor.py", line 630, in backward
[rank0]:     torch.autograd.backward(
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of \
21.98 GiB of which 812.44 MiB is free. Including non-PyTorch memory, this process has 21.18 GiB memory in use. Of \
the allocated memory 19.87 GiB is allocated by PyTorch, with 46.00 MiB allocated in private pools (e.g., CUDA \
Graphs), and 1.03 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try \
setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory \
Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)
"""
JAX = """\
2026-11-29 10:00:00.000000: W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out \
of memory trying to allocate 19.59GiB (rounded to 21034588160)requested by op
Traceback (most recent call last):
  File "/ml/usercode/train.py", line 5, in <module>
    step(batch).block_until_ready()
    ^^^^^^^^^^^
jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory {what}
--------------------
For simplicity, JAX has removed its internal frames from the traceback of the following exception. Set \
JAX_TRACEBACK_FILTERING=off to include these.
"""


@pytest.mark.parametrize(
    ("log", "part"),
    [
        (TORCH, GPU),
        (JAX.format(what="while trying to allocate 19.59GiB. [executable_name='jit_step']"), GPU),
        (JAX.format(what="while trying to allocate 21034588160 bytes."), GPU),
        (JAX.format(what="allocating 16000000000000 bytes."), HOST),  # on CPUs
    ],
)
def test_a_framework_without_memory_has_advice(log: str, part: str) -> None:
    lines = log.splitlines()
    assert part in log_advice(root_cause(find_traceback(lines)), lines, JOB)
    assert part in log_advice("", lines, JOB)


@pytest.mark.parametrize(
    ("cause", "part"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.", GPU),
        ("torch.cuda.OutOfMemoryError: HIP out of memory.", GPU),
        ("torch.AcceleratorError: CUDA error: out of memory", GPU),
        ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.0GiB", GPU),
        ("MemoryError", HOST),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array", HOST),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ", HOST),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible", SHARED),
        ("OSError: [Errno 28] No space left on device: '/ml/output/model/a'", DISK),
        ("OSError: [Errno 122] Disk quota exceeded", DISK),
        ("ModuleNotFoundError: No module named 'cv2'", "requirements=['opencv-python']"),
        ("ImportError: libcudart.so.12: cannot open shared object file: No such file", "has no libcudart.so.12:"),
        ("ValueError: numpy.dtype size changed, may indicate binary incompatibility.", "numpy<2"),
        ("AssertionError: Torch not compiled with CUDA enabled", "instance type with a GPU"),
        ("RuntimeError: CUDA error: device-side assert triggered", "{'CUDA_LAUNCH_BLOCKING': '1'}"),
        (NCCL, "init_process_group"),
        (
            "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients.",
            "init_process_group",
        ),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, ncclRemoteError", "NCCL_DEBUG"),
        ("OSError: [Errno 98] Address already in use", "port"),
        ("PermissionError: [Errno 13] Permission denied: '/data/a'", "$PAI_OUTPUT_MODEL"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'data/a.csv'",
            "its inputs are $PAI_INPUT_TRAIN",
        ),
        ("KeyError: 'PAI_INPUT_TEST'", "PAI_INPUT_TRAIN"),
        (
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(...): Max retries exceeded with url",
            "network",
        ),
    ],
)
def test_exceptions_have_advice(cause: str, part: str) -> None:
    assert part in log_advice(cause, ["a line"], JOB)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("sh: 1: trian: not found", "no program trian:"),
        ("/ml/usercode/run.sh: line 3: nvcc: command not found", "no program nvcc:"),
        ('OCI runtime create failed: exec: "trian": executable file not found in $PATH', "no program trian:"),
        ("sh: 1: ./train.sh: Permission denied", "./train.sh is not executable"),
        ("run.sh: line 2: $'\\r': command not found", "CRLF"),
        ("/bin/sh^M: bad interpreter: No such file or directory", "CRLF"),
        ("python: can't open file '/ml/usercode/trian.py': [Errno 2] No such file", "source_dir"),
        ("train.py: error: unrecognized arguments: --rate", "$PAI_USER_ARGS"),
        ("Killed", HOST),
        ("run.sh: line 1:    12 Killed                  python train.py", HOST),
        ("/usr/bin/python3: No module named torch", "requirements=['torch']"),
    ],
)
def test_last_lines_without_an_exception_have_advice(line: str, part: str) -> None:
    assert part in log_advice("", ["epoch 1", line, ""], JOB)


@pytest.mark.parametrize("message", ["Back-off: ImagePullBackOff", "manifest for a/b:c not found"])
def test_an_image_that_cannot_be_pulled_has_advice(message: str) -> None:
    assert "registry" in log_advice("", [], JOB, message)


def test_an_error_before_another_exception_has_no_advice() -> None:
    assert log_advice("KeyError: 3", ["Connection: Max retries exceeded, trying again", "Killed"], JOB) == ""
    assert log_advice("", ["cat: /data/a: Permission denied", "loss 0.3"], JOB) == ""


def test_below_an_exception_of_a_launcher_the_lines_are_searched() -> None:
    cause = "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1."
    assert GPU in log_advice(cause, ["RuntimeError: CUDA out of memory", "Traceback"], JOB)


@pytest.mark.parametrize(
    "message",
    [
        *(exit_reason("train1-master-0", code)[1] for code in (126, 127, 137)),
        memory_limit_message("train1-master-0", 137, 1 << 30),
        disk_full_message("train1-master-0", 1),
    ],
)
def test_the_advice_of_a_reason_is_a_sentence_of_its_own(message: str) -> None:
    sentence, advice = split_advice(message)
    assert sentence.startswith("Instance train1-master-0 ")
    assert sentence.endswith(".")
    assert advice[0].isupper()
    assert advice[1:] in message
    assert advice[1:] not in sentence
    assert split_advice("Another reason.") == ("Another reason.", "")

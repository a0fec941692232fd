"""The text before the command of a DLC job, which makes what the job contract promises out of mounts.

It is POSIX sh and has no secret: all members of the workspace can read the command of a job. What belongs to one
job is in the files of its job folder, see `job_folder`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

END = "# ---- the command of the job\n"
"""The last line of the prefix."""

EXIT_CODE = 78
"""Of a job that cannot be prepared: EX_CONFIG of sysexits.h, since 126 and 127 are about the command itself."""

_PREFIX = """\
# pai_sdk: folders and variables of the job contract
pai_sdk_end() { echo "pai_sdk: $*" >&2; exit 78; }
pai_sdk_job=@ML@/job
[ -r "$pai_sdk_job/env.sh" ] || pai_sdk_end "$pai_sdk_job is not mounted"
. "$pai_sdk_job/env.sh"
for pai_sdk_dir in $PAI_SDK_MOUNTS; do
  [ -d "$pai_sdk_dir" ] || pai_sdk_end "$pai_sdk_dir is not mounted"
done
for pai_sdk_dir in $PAI_SDK_OUTPUTS; do
  pai_sdk_file="$pai_sdk_dir/.pai_sdk-${RANK:-0}-$$"
  (true >"$pai_sdk_file" && rm -f "$pai_sdk_file") 2>/dev/null || pai_sdk_end "$pai_sdk_dir is not writable"
done
pai_sdk_dir=@ML@/usercode
(mkdir -p "$pai_sdk_dir" && [ -w "$pai_sdk_dir" ]) 2>/dev/null || pai_sdk_dir="${TMPDIR:-/tmp}/pai_sdk-usercode"
mkdir -p "$pai_sdk_dir" && cd "$pai_sdk_dir" || pai_sdk_end "$pai_sdk_dir cannot be made"
if mkdir .pai_sdk 2>/dev/null; then
  [ ! -d @ML@/code ] || cp -R @ML@/code/. . || pai_sdk_end "the code cannot be copied"
  [ ! -f "$pai_sdk_job/executables" ] || while IFS= read -r pai_sdk_file; do
    chmod +x "./$pai_sdk_file"
  done <"$pai_sdk_job/executables"
  true >.pai_sdk/ready
else # instances of some services share the folder
  pai_sdk_file=600
  until [ -e .pai_sdk/ready ]; do
    [ $((pai_sdk_file -= 1)) -gt 0 ] || pai_sdk_end "another instance has not copied the code"
    sleep 1
  done
fi
export PAI_WORKING_DIR="$pai_sdk_dir" PAI_CONFIG_DIR="$pai_sdk_job/config"
pai_sdk_file=$(uname -n)
export PAI_INSTANCE_NAME="${PAI_INSTANCE_NAME:-$pai_sdk_file}"
pai_sdk_file=${pai_sdk_file%-*}
export PAI_TRAINING_JOB_ID="${PAI_TRAINING_JOB_ID:-${DLC_JOB_ID:-${JOB_NAME:-${pai_sdk_file%-*}}}}"
if [ -f "$pai_sdk_job/requirements.txt" ]; then
  [ ! -f requirements.txt ] || set -- -r requirements.txt
  "$(command -v python3 || echo python)" "$pai_sdk_job/install.py" -r "$pai_sdk_job/requirements.txt" "$@" ||
    pai_sdk_end "the requirements cannot be installed"
  set --
fi
unset pai_sdk_job pai_sdk_dir pai_sdk_file PAI_SDK_MOUNTS PAI_SDK_OUTPUTS
"""


def with_prefix(command: Sequence[str], *, ml: str = "/ml") -> str:
    """Returns the UserCommand of a command; the exit code of the command is that of the whole."""
    return _PREFIX.replace("@ML@", ml) + END + user_text(command)


def user_text(command: Sequence[str]) -> str:
    """Returns a command as text of a shell."""
    if list(command[:2]) == ["sh", "-c"] and len(command) == 3:
        return command[2]
    return f"exec {shlex.join(command)}"


def command_of(user_command: str, recorded: str | None) -> list[str]:
    """Returns the command of a job: as it was recorded in a variable, or else the text behind the prefix."""
    try:
        command = json.loads(recorded or "")
        if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
            return command
    except (ValueError, RecursionError):
        pass
    _, end, text = user_command.partition(END)
    return ["sh", "-c", text if end else user_command]

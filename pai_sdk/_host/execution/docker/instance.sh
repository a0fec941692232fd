#!/bin/sh
# The first process of a container. It starts the user's command as a child, writes the log, enforces the time limit
# and writes the exit code. No process outside of the container is needed for that.
#
# The instances of a job and the executor communicate through the files of the folder PAI_SDK_SHARED. The executor's
# side is shared_folder.py. A file marked (1) has its first content for good, whichever process writes it.
#
#   go                   all containers exist, the commands may start (1)
#   stop                 the job is to be stopped, with the reason as JSON; `signal`: this container got SIGTERM (1)
#   failed               the instance that failed first, and its exit code; then `silent` where another instance wrote
#                        it because this one gave no sign of life (1)
#   timeout              the instance that reached the time limit first (1)
#   preempt              the instance that was preempted first; then the drill preempts all others (1)
#   <instance>.settings  settings of this script
#   <instance>.env       the variables of the command
#   <instance>.why       why this instance was ended by this script: stopped, timeout, peer or done (1)
#   <instance>.after     what must run before its command: lines of `<count> <instance>...`
#   <instance>.optional  the job does not wait for its end; `harmless`: it may fail, too
#   mounts               the folders besides /ml that the job may change, one a line
#   awaited              the instances for which the job waits, if there are others
#   <instance>.preempted this instance is being preempted
#   <instance>.vacated   it was preempted and its command has ended; it starts again when all have ended
#   <instance>.times     the size of its log over time: lines of `<seconds since 1970> <bytes>`
#   <instance>.started   its command was started
#   <instance>.beat      touched while this instance is alive
#   <instance>.mark      touched at each check of the other instances
#   requirements/        empty, or what is kept for all jobs with these requirements, see requirements_cache.py
#   requirements.done    the requirements are installed
#   requirements.failed  the requirements could not be installed; the reason, if pip could not be run (1)
#   <instance>.memory    the kernel killed a process of it for lack of memory
#   <instance>.exit      its exit code; the time of the file is that of the end
#
# States: the log is opened -> `go` -> requirements -> `.started` -> the command -> `.exit`. The watch, a second
# process, looks for `stop`, `timeout` and `failed` from the requirements on; before, this script looks for `stop`.
#
# usage: sh instance.sh NAME COMMAND ARGUMENT...    POSIX shell: dash, bash, busybox.
#        bash instance.sh --watch PREEMPT_AFTER JOB_BEGUN NAME    the watch alone; see `start_watch`
#
# A job may use up the process ids of its container, and a shell that cannot fork ends. So the watch starts no
# process: it waits with `read -t`, and uses built-in commands only.
#
# Its variables begin with `_`: all other names belong to the image and reach the command unchanged.
# `true >file`, not `: >file`: if the redirection fails, a special built-in such as `:` would end this shell.
# With `set -C`, `>` creates a file and fails if it exists (1); `>|` always writes.

_watch_only=
if [ "$1" = --watch ]; then
    _watch_only=yes
    _preempt_after=$2
    _job_begun=$3
    shift 3
fi
_name=$1
shift
_shared=$PAI_SDK_SHARED
_kept=$_shared/requirements
set -C

say() { echo "[pai-sdk] $*"; }

waits() { # SECONDS: whether `read -t` of this shell works
    read -r _before _rest </proc/uptime
    # shellcheck disable=SC3045 # a shell without it exits with 2
    (read -r -t "$1" _nothing <&9) 2>/dev/null
    if [ $? -eq 2 ]; then return 1; fi
    read -r _up _rest </proc/uptime
    [ "$_up" != "$_before" ]
}

find_pause() { # Sets $_pause: the way to wait, from the cheapest to a process. Fails if there is none.
    _bash=$(command -v bash) || _bash=
    # A read from a new terminal whose other end is not open gets nothing, so it lasts until its time limit.
    if (exec 9<>/dev/ptmx) 2>/dev/null; then
        exec 9<>/dev/ptmx
        for _pause in 0.1 1; do
            if waits "$_pause"; then return 0; fi
        done
        if [ -n "$_bash" ]; then _pause="bash" && return 0; fi
    fi
    _bash=
    _pause="sleep"
    command -v sleep >/dev/null
}

pause() { # SECONDS: wait
    # shellcheck disable=SC3045
    case $_pause in
    0.1) read -r -t "$1" _nothing <&9 ;;
    1) read -r -t 1 _nothing <&9 ;;
    bash) LC_ALL=C "$_bash" -c 'read -r -t "$1" _nothing <&9' pause "$1" ;;
    *) sleep "$1" 2>/dev/null || sleep 1 ;;
    esac
}

now() { # Sets $_now: monotonic time in seconds.
    { read -r _up _rest </proc/uptime && _now=${_up%%.*}; } 2>/dev/null || _now=$(date +%s)
}

first() { # FILE TEXT: write a file unless it exists
    { echo "$2" >"$1"; } 2>/dev/null
}

because() { # WHY: written here too, because the watch may have been killed before or while it wrote it
    { echo "$1" >|"$_shared/$_name.why"; } 2>/dev/null
}

count_kills() { # Sets $_kills: how often the kernel killed here for lack of memory. An engine may learn of it late.
    _kills=0
    for _counts in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
        [ -r "$_counts" ] || continue
        while read -r _what _count; do
            if [ "$_what" = oom_kill ]; then _kills=$_count; fi
        done <"$_counts"
    done 2>/dev/null
}

end() { # CODE: write how this instance ended, and exit
    count_kills
    if [ "$_kills" -gt "$_kills_before" ]; then true >|"$_shared/$_name.memory"; fi
    if [ "$1" -ne 0 ] && [ ! -s "$_shared/$_name.why" ]; then
        # In a job that is being ended, the command may fail because others have gone, before the watch sees why.
        if [ -e "$_shared/stop" ]; then
            because stopped
        elif [ -e "$_shared/timeout" ]; then
            because timeout
        elif is_unneeded; then
            because "done"
        elif ! is_harmless; then
            first "$_shared/failed" "$_name $1"
        fi
    fi
    # On a full disk the file is empty or missing; then the executor asks the engine for the exit code.
    if [ -n "$PAI_SDK_GIVE_TO" ]; then
        { echo "$1" >|"$_shared/$_name.exit.part" || rm -f "$_shared/$_name.exit.part"; } 2>/dev/null
        chown -hR "$PAI_SDK_GIVE_TO" /ml/usercode /ml/output "$_shared" 2>/dev/null
        if [ -e "$_shared/mounts" ]; then
            while read -r _mount; do chown -hR "$PAI_SDK_GIVE_TO" "$_mount"; done <"$_shared/mounts" 2>/dev/null
        fi
        mv "$_shared/$_name.exit.part" "$_shared/$_name.exit" 2>/dev/null
    else
        { echo "$1" >|"$_shared/$_name.exit"; } 2>/dev/null
    fi
    exit "$1"
}

signal_all() { # SIGNAL: to all processes of the container except the first one and the caller
    # Not `-s TERM -- -1` as in POSIX, which busybox does not support.
    kill "-$1" -1 2>/dev/null
}

terminate() { # SIGTERM, wait until all have ended or the grace period is over, SIGKILL
    now
    _until=$((_now + PAI_SDK_GRACE_S))
    signal_all TERM
    while signal_all 0 && now && [ "$_now" -lt "$_until" ]; do
        pause 0.2
    done
    signal_all KILL
}

end_for() { # WHY: end the command for this reason
    first "$_shared/$_name.why" "$1"
    terminate
}

has_ended() { # PATH of an instance's files. With `.exit.part` it still gives its files to their owner.
    [ -e "$1.exit" ] || [ -e "$1.exit.part" ]
}

others_are_lost() { # Sets $_lost: an instance that gave no sign of life since the last mark, and has not ended.
    for _beat in "$_shared"/*.beat; do
        _other=${_beat%.beat}
        if [ "$_shared/$_name.mark" -nt "$_beat" ] && [ "$_other" != "$_shared/$_name" ] && ! has_ended "$_other"; then
            _lost=${_other##*/}
            return 0
        fi
    done
    return 1
}

is_unneeded() { # Whether the job does not wait for this instance, and those have ended that it waits for.
    [ -e "$_shared/$_name.optional" ] || return 1
    while read -r _other; do
        has_ended "$_shared/$_other" || return 1
    done <"$_shared/awaited"
}

is_harmless() { # Whether a failure of this instance is none of the job.
    _kind=
    if [ -e "$_shared/$_name.optional" ]; then read -r _kind <"$_shared/$_name.optional"; fi
    [ "$_kind" = "harmless" ]
}

may_start() { # Whether enough instances run of those that this one waits for.
    while read -r _needed _others; do
        for _other in $_others; do
            if [ -e "$_shared/$_other.started" ]; then _needed=$((_needed - 1)); fi
        done
        if [ "$_needed" -gt 0 ]; then return 1; fi
    done <"$_shared/$_name.after"
}

wait_for_others() {
    until may_start; do
        if [ -e "$_shared/$_name.why" ]; then return 143; fi # the signal came before the trap was reset
        pause 0.2
    done
    return 0 # a loop has the exit code of `pause`
}

is_over() { # SECONDS SINCE: 0 is no limit. `-gt`, because $_now is rounded down.
    [ "$1" -gt 0 ] && [ $((_now - $2)) -gt "$1" ]
}

is_being_ended() { # PREEMPT_AFTER: the watch ends the command, or will, because the drill preempts all instances
    if [ -e "$_shared/$_name.why" ] || [ -e "$_shared/$_name.preempted" ]; then return 0; fi
    [ "$1" -gt 0 ] && [ "$_code" -ne 0 ] && [ -e "$_shared/preempt" ]
}

others_are_there() { # Whether an instance that is to be preempted still runs its command.
    for _settings in "$_shared"/*.settings; do
        _other=${_settings%.settings}
        if [ ! -e "$_other.vacated" ] && ! has_ended "$_other"; then return 0; fi
    done
    return 1
}

meet_again() { # Wait for the others: an instance that started at once would connect to those about to end.
    true >|"$_shared/$_name.vacated"
    now
    _until=$((_now + PAI_SDK_GRACE_S + 20)) # an instance that was killed never writes `.vacated`
    while others_are_there && now && [ "$_now" -lt "$_until" ]; do
        if [ -e "$_shared/stop" ] || [ -e "$_shared/failed" ] || [ -e "$_shared/timeout" ]; then return; fi
        true >|"$_shared/$_name.beat"
        pause 0.1
    done
}

note_sizes() { # Write `.times`. This starts processes, so it is not a part of the watch.
    command -v stat >/dev/null || return 0
    _noted=
    while _size=$(stat -c '%Y %s' "$_shared/logs/$_name.log"); do
        if [ "$_size" != "$_noted" ]; then echo "$_size" >>"$_shared/$_name.times"; fi
        _noted=$_size
        pause 0.5
    done 2>/dev/null
}

watch() { # PREEMPT_AFTER: every half second, until there is a reason to end the command
    now
    _begun=$_now
    _looks=0
    true >|"$_shared/$_name.mark"
    while :; do
        true >|"$_shared/$_name.beat"
        now
        if [ -e "$_shared/stop" ]; then
            end_for stopped
            return
        elif [ -e "$_shared/timeout" ] || is_over "$PAI_SDK_LIMIT_S" "$_job_begun"; then
            first "$_shared/timeout" "$_name"
            end_for timeout
            return
        elif [ -e "$_shared/failed" ]; then
            end_for peer
            return
        elif is_unneeded; then
            end_for "done"
            return
        elif [ "$1" -gt 0 ] && { [ -e "$_shared/preempt" ] || is_over "$1" "$_begun"; }; then
            say "drill: $_name is preempted now (SIGTERM, as when a spot instance is taken away)"
            first "$_shared/preempt" "$_name"
            true >|"$_shared/$_name.preempted"
            terminate
            return
        fi
        _looks=$((_looks + 1))
        if [ $((_looks % 40)) -eq 0 ]; then
            if others_are_lost; then
                first "$_shared/failed" "$_lost 137 silent"
            fi
            true >|"$_shared/$_name.mark"
        fi
        pause 0.5
    done
}

start_watch() { # PREEMPT_AFTER: sets $_watcher. Before the command starts, which may use up the process ids.
    (note_sizes 2>/dev/null &) # not a job of this shell: bash would write into the log that it was killed
    if [ "$_pause" = "bash" ]; then # dash has no `read -t`; most images with dash have bash too
        LC_ALL=C "$_bash" --posix "$_shared/instance.sh" --watch "$1" "$_job_begun" "$_name" &
    else
        watch "$1" &
    fi
    _watcher=$!
}

use_requirements() { # Put what was installed for this job first.
    [ -e "$_shared/requirements.txt" ] || return 0
    unset PYTHONNOUSERSITE
    export PYTHONUSERBASE="$_shared/python"
    export PATH="$_shared/python/bin:$_shared/python/target/bin:$_kept/python/bin:$_kept/python/target/bin:$PATH"
    export PYTHONPATH="$_shared/python/target:$_kept/python/target${PYTHONPATH:+:$PYTHONPATH}"
}

see_kept() { # Have the Python of users' packages see those that are kept, too. What the command installs is not kept.
    "$_python" -c '
import os, site, sys
own = site.getusersitepackages()
os.makedirs(own, exist_ok=True)
with open(os.path.join(own, "pai_sdk_kept.pth"), "w") as file:
    file.write("import site; site.addsitedir(%r)\n" % own.replace(sys.argv[1], sys.argv[2], 1))
' "$_shared/python" "$_kept/python" || return 1
    true >|"$_shared/requirements.done"
}

keep() { # Publish what was installed; where another job was first, its installation is used.
    "$_python" -c 'import os, sys; os.rename(*sys.argv[1:])' "$_into" "$_kept/python" 2>/dev/null || rm -rf "$_into"
    [ -d "$_kept/python" ] && true >|"$_kept/complete"
}

become_command() { # COMMAND ARGUMENT...
    # May put `env NAME=VALUE` before the command, for names that a shell cannot set.
    # shellcheck source=/dev/null
    . "$_shared/$_name.env"
    use_requirements
    cd "$PAI_WORKING_DIR" || exit 126
    umask "$PAI_SDK_UMASK"
    unset PAI_SDK_SHARED PAI_SDK_LOG
    # A background process of a shell ignores SIGINT, with all its children; the command must not. In bash `trap`
    # resets it, in other shells the `env` of coreutils does; in busybox nothing does.
    trap - INT QUIT
    # A signal that came before the trap was reset had no effect here; but then the watch has written its reason.
    if [ -e "$_shared/$_name.why" ] || [ -e "$_shared/$_name.preempted" ]; then exit 143; fi
    # shellcheck disable=SC2086 # words
    exec $_apart $_attentive "$@" 9<&-
}

refuse_requirements() { # WHY
    say "the requirements cannot be installed: $1"
    first "$_shared/requirements.failed" "$1"
}

install_requirements() {
    if [ -e "$_shared/$_name.why" ]; then return 143; fi # the signal came before the trap was reset
    if [ "$PAI_SDK_RANK" -ne 0 ]; then
        while [ ! -e "$_shared/requirements.done" ]; do
            if [ -e "$_shared/failed" ] || [ -e "$_shared/stop" ]; then return 1; fi
            pause 0.2
        done
        return 0
    fi
    exec 9<&-
    # shellcheck source=/dev/null
    . "$_shared/$_name.env"
    use_requirements
    _python=$(command -v python3 || command -v python) || {
        refuse_requirements "this image has no Python"
        return 1
    }
    if [ -e "$_kept/complete" ]; then
        see_kept
        return
    fi
    cd "$PAI_WORKING_DIR" || return 1
    "$_python" -m pip --version >/dev/null 2>&1 || {
        refuse_requirements "the image's $_python has no pip"
        return 1
    }
    # Into a folder of the job, or one that is kept: that needs no root and leaves the image as it is. A virtual
    # environment has no user site, so there a plain folder is used.
    _into=$PYTHONUSERBASE
    if [ -e "$_kept/image" ]; then
        _into=$_kept/.$_name
        rm -rf "$_into"
        export PYTHONUSERBASE="$_into"
    fi
    if "$_python" -c 'import sys; sys.exit(sys.prefix != sys.base_prefix)'; then
        _where=--user
    else
        _where=--target=$PYTHONUSERBASE/target
    fi
    export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
    export PIP_RETRIES="${PIP_RETRIES:-2}"
    if [ ! -e "$_kept/image" ]; then
        say "installing the requirements"
        "$_python" -m pip install -q --no-warn-script-location "$_where" -r "$_shared/requirements.txt" || return 1
        true >|"$_shared/requirements.done"
        return
    fi
    say "installing the requirements; later jobs with the same ones reuse them"
    "$_python" -m pip install -q --no-warn-script-location "$_where" -r "$_shared/requirements.txt" || {
        rm -rf "$_into"
        return 1
    }
    keep || return 1
    export PYTHONUSERBASE="$_shared/python"
    see_kept
}

follow() { # PID PREEMPT_AFTER: wait for a child, then end what it left behind. Sets $_code: its exit code.
    _child=$1
    wait "$_child" 2>/dev/null # without the message of the shell about a signal
    _code=$?
    # A trapped signal ends `wait` early; then the child still runs.
    while kill -0 "$_child" 2>/dev/null; do
        wait "$_child" 2>/dev/null
        _code=$?
    done
    # If the child ended while the trap ran, a second `wait` has its code in most shells; in bash it may be -1.
    if [ "$_code" -gt 128 ]; then
        wait "$_child" 2>/dev/null
        _again=$?
        if [ "$_again" -ge 0 ] && [ "$_again" -ne 127 ]; then _code=$_again; fi
    fi
    # If the watch ends the command, the processes that the command started have the grace period, too.
    if ! is_being_ended "$2"; then signal_all KILL; fi
    wait "$_watcher" 2>/dev/null
}

if [ -n "$_watch_only" ]; then
    _pause="0.1"
    # shellcheck source=/dev/null
    . "$_shared/$_name.settings"
    watch "$_preempt_after"
    exit
fi

find_pause || {
    echo "this image cannot run a job: it has no program \`sleep\`, and no shell that can wait by itself (bash, busybox)"
    exit 126
}
echo "the output of $_name goes to $PAI_SDK_LOG on the host"
exec </dev/null >>"$_shared/logs/$_name.log" 2>&1
# shellcheck source=/dev/null
. "$_shared/$_name.settings"

# SIGTERM becomes a stop request; the loop below or the watch carries it out.
trap 'first "$_shared/stop" signal' TERM INT

_env=$(command -v env) || _env="env"
_attentive=
if "$_env" --default-signal=INT,QUIT true 2>/dev/null; then _attentive="$_env --default-signal=INT,QUIT"; fi

# A command that signals its own process group (`trap 'kill 0' EXIT`) must not reach this script.
_apart=$(command -v setsid) || _apart=

true >|"$_shared/$_name.beat"
count_kills
_kills_before=$_kills
now
_patience_ends=$((_now + 600)) # 10 minutes: the engine may be slow to create the other containers
while [ ! -e "$_shared/go" ]; do
    now
    if [ -e "$_shared/stop" ] || [ "$_now" -ge "$_patience_ends" ]; then
        first "$_shared/$_name.why" stopped
        end 143
    fi
    pause 0.1
done

now
_job_begun=$_now
if [ -e "$_shared/requirements.txt" ]; then
    start_watch 0
    install_requirements &
    follow $! 0
    if [ "$_code" -ne 0 ]; then
        if [ ! -s "$_shared/$_name.why" ]; then
            if [ "$PAI_SDK_RANK" -eq 0 ]; then
                first "$_shared/requirements.failed" ""
            else
                because peer
            fi
        fi
        end "$_code"
    fi
fi

if [ -e "$_shared/$_name.after" ]; then
    start_watch 0
    wait_for_others &
    follow $! 0
    if [ "$_code" -ne 0 ]; then end "$_code"; fi
fi

true >|"$_shared/$_name.started"
start_watch "$PAI_SDK_PREEMPT_AFTER_S"
become_command "$@" &
follow $! "$PAI_SDK_PREEMPT_AFTER_S"
if [ -e "$_shared/$_name.preempted" ] && [ ! -e "$_shared/$_name.why" ]; then
    meet_again
    rm -f "$_shared/$_name.preempted"
    say "drill: $_name is started again; a job that resumes from its checkpoints goes on where it was"
    start_watch 0
    become_command "$@" &
    follow $! 0
fi
end "$_code"

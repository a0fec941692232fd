#!/bin/sh
# The first process of a container: starts the user's command as a child and stays with it.
#
# It needs no one outside: it keeps the log, ends the command at its time limit, tells the other instances of a
# failure and sees theirs, all through the folder PAI_SDK_SHARED, which the instances of a job share.
#
#   go                   all instances stand; nothing is started before
#   stop                 the job is to be stopped, and why; `signal` where this container was told to end
#   failed               the instance that failed first, and its exit code; `silent` besides, where another instance
#                        wrote it, since this one gave no sign of life
#   timeout              the instance that reached the time limit first
#   preempt              the instance that was preempted first; the drill takes all of them
#   <instance>.settings  what this script has to know
#   <instance>.env       the variables of the command
#   <instance>.why       why this instance was ended by us: stopped, timeout or peer
#   <instance>.preempted the drill takes this instance
#   <instance>.vacated   it has ended for the drill, and is started again when all have
#   <instance>.times     when its log had which size: lines of `<seconds since 1970> <bytes>`
#   <instance>.beat      touched while this instance is alive
#   requirements.failed  the requirements could not be installed, and why, where that was not pip's doing
#   <instance>.memory    the kernel has killed something in it for want of memory
#   <instance>.exit      exit code; its time is that of the end
#
# usage: sh instance.sh NAME COMMAND ARGUMENT...    POSIX shell: dash, bash, busybox.
#        bash instance.sh --watch PREEMPT_AFTER JOB_BEGUN NAME    the watch alone; see `start_watch`
#
# A job may use up all the processes that its container may have. A shell that cannot make a process ends there, so the
# watch makes none: it waits by `read -t`, and all else that it does is built in.
#
# Its own variables begin with `_`: whatever others there are belong to the image and reach the command unchanged.
# `true >file`, not `: >file`: where the disk fails, a special built-in would end this shell.
# With `set -C`, `>` writes a file unless it is there, and `>|` always.

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
set -C

say() { echo "[pai-sdk] $*"; }

waits() { # SECONDS: whether this shell's `read` has a time limit, and keeps it
    read -r _before _rest </proc/uptime
    # shellcheck disable=SC3045 # shells without it say 2
    (read -r -t "$1" _nothing <&9) 2>/dev/null
    if [ $? -eq 2 ]; then return 1; fi
    read -r _up _rest </proc/uptime
    [ "$_up" != "$_before" ]
}

find_pause() { # How to wait for a moment; in $_pause. Fails where there is no way.
    _bash=$(command -v bash) || _bash=
    # Nothing ever comes from a new terminal whose other end is not open.
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

pause() { # SECONDS: wait, without a process where that is possible
    # shellcheck disable=SC3045
    case $_pause in
    0.1) read -r -t "$1" _nothing <&9 ;;
    1) read -r -t 1 _nothing <&9 ;;
    bash) LC_ALL=C "$_bash" -c 'read -r -t "$1" _nothing <&9' pause "$1" ;;
    *) sleep "$1" 2>/dev/null || sleep 1 ;;
    esac
}

now() { # Seconds that pass evenly whatever becomes of the clock; in $_now.
    { read -r _up _rest </proc/uptime && _now=${_up%%.*}; } 2>/dev/null || _now=$(date +%s)
}

first() { # FILE TEXT: write it, unless it is there: the first one counts
    { echo "$2" >"$1"; } 2>/dev/null
}

because() { # WHY: instead of the watcher, which may have been ended before it wrote it, or while it did
    { echo "$1" >|"$_shared/$_name.why"; } 2>/dev/null
}

count_kills() { # By the kernel, here, for want of memory; in $_kills. An engine may hear of them after the end.
    _kills=0
    for _counts in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
        [ -r "$_counts" ] || continue
        while read -r _what _count; do
            if [ "$_what" = oom_kill ]; then _kills=$_count; fi
        done <"$_counts"
    done 2>/dev/null
}

end() { # CODE: write down how it ended, then end
    count_kills
    if [ "$_kills" -gt "$_kills_before" ]; then true >|"$_shared/$_name.memory"; fi
    if [ "$1" -ne 0 ] && [ ! -s "$_shared/$_name.why" ]; then
        # Where the job is being ended, this one may have missed the others before it was told itself.
        if [ -e "$_shared/stop" ]; then
            because stopped
        elif [ -e "$_shared/timeout" ]; then
            because timeout
        else
            first "$_shared/failed" "$_name $1"
        fi
    fi
    # On a full disk the file is empty, or there is none; then the engine still knows the code.
    if [ -n "$PAI_SDK_GIVE_TO" ]; then
        { echo "$1" >|"$_shared/$_name.exit.part" || rm -f "$_shared/$_name.exit.part"; } 2>/dev/null
        chown -hR "$PAI_SDK_GIVE_TO" /ml/usercode /ml/output "$_shared" 2>/dev/null
        mv "$_shared/$_name.exit.part" "$_shared/$_name.exit" 2>/dev/null
    else
        { echo "$1" >|"$_shared/$_name.exit"; } 2>/dev/null
    fi
    exit "$1"
}

signal_all() { # Everything in this container but its first process and the caller.
    # Not `-s TERM -- -1`, as POSIX writes it: busybox does not understand that.
    kill "-$1" -1 2>/dev/null
}

terminate() { # Ask, wait while anything is left and the grace period lasts, then insist.
    now
    _until=$((_now + PAI_SDK_GRACE_S))
    signal_all TERM
    while signal_all 0 && now && [ "$_now" -lt "$_until" ]; do
        pause 0.2
    done
    signal_all KILL
}

end_for() { # WHY: the first reason stays
    first "$_shared/$_name.why" "$1"
    terminate
}

has_ended() { # PATH: of an instance's files; what it wrote may still be given to its owner, which takes a while
    [ -e "$1.exit" ] || [ -e "$1.exit.part" ]
}

others_are_lost() { # An instance that has given no sign of life since our last mark, and has not ended either.
    for _beat in "$_shared"/*.beat; do
        _other=${_beat%.beat}
        if [ "$_shared/$_name.mark" -nt "$_beat" ] && [ "$_other" != "$_shared/$_name" ] && ! has_ended "$_other"; then
            _lost=${_other##*/}
            return 0
        fi
    done
    return 1
}

is_over() { # SECONDS SINCE: 0 seconds are never over; of whole seconds, one more must have begun
    [ "$1" -gt 0 ] && [ $((_now - $2)) -gt "$1" ]
}

is_being_ended() { # PREEMPT_AFTER: by the watcher; or it is about to, since the drill has come to another instance
    if [ -e "$_shared/$_name.why" ] || [ -e "$_shared/$_name.preempted" ]; then return 0; fi
    [ "$1" -gt 0 ] && [ "$_code" -ne 0 ] && [ -e "$_shared/preempt" ]
}

others_are_there() { # Whether an instance still works that the drill has not come to yet.
    for _settings in "$_shared"/*.settings; do
        _other=${_settings%.settings}
        if [ ! -e "$_other.vacated" ] && ! has_ended "$_other"; then return 0; fi
    done
    return 1
}

meet_again() { # An instance that began at once would meet those that are about to go.
    true >|"$_shared/$_name.vacated"
    now
    _until=$((_now + PAI_SDK_GRACE_S + 20)) # one that died without a word is not waited for
    while others_are_there && now && [ "$_now" -lt "$_until" ]; do
        if [ -e "$_shared/stop" ] || [ -e "$_shared/failed" ] || [ -e "$_shared/timeout" ]; then return; fi
        true >|"$_shared/$_name.beat"
        pause 0.1
    done
}

note_sizes() { # When the log was written to last, and its size then. That needs processes, so it is apart from the watch.
    command -v stat >/dev/null || return 0 # then the times are not known
    _noted=
    while _size=$(stat -c '%Y %s' "$_shared/logs/$_name.log"); do
        if [ "$_size" != "$_noted" ]; then echo "$_size" >>"$_shared/$_name.times"; fi
        _noted=$_size
        pause 0.5
    done 2>/dev/null
}

watch() { # PREEMPT_AFTER: look after the command until it has ended
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

start_watch() { # PREEMPT_AFTER: before the command begins, which may leave no process for it; its id in $_watcher
    note_sizes 2>/dev/null &
    if [ "$_pause" = "bash" ]; then # dash has no `read -t`; most images that have dash have bash too
        LC_ALL=C "$_bash" --posix "$_shared/instance.sh" --watch "$1" "$_job_begun" "$_name" &
    else
        watch "$1" &
    fi
    _watcher=$!
}

use_requirements() { # What is installed for this job comes first.
    [ -e "$_shared/requirements.txt" ] || return 0
    unset PYTHONNOUSERSITE
    export PYTHONUSERBASE="$_shared/python"
    export PATH="$_shared/python/bin:$_shared/python/target/bin:$PATH"
    export PYTHONPATH="$_shared/python/target${PYTHONPATH:+:$PYTHONPATH}"
}

become_command() { # COMMAND ARGUMENT...
    # May put `env NAME=VALUE` before the command: for names that no shell takes.
    # shellcheck source=/dev/null
    . "$_shared/$_name.env"
    use_requirements
    cd "$PAI_WORKING_DIR" || exit 126
    umask "$PAI_SDK_UMASK"
    unset PAI_SDK_SHARED PAI_SDK_LOG
    # What a shell starts in the background is deaf to SIGINT, with all that it starts itself; a job must not be.
    # Bash is content with `trap`, other shells need the `env` of coreutils; busybox has no remedy.
    trap - INT QUIT
    # A signal from before this process was rid of the script's traps has done nothing; what it was for is written.
    if [ -e "$_shared/$_name.why" ] || [ -e "$_shared/$_name.preempted" ]; then exit 143; fi
    # shellcheck disable=SC2086 # words
    exec $_apart $_attentive "$@" 9<&-
}

refuse_requirements() { # WHY
    say "the requirements cannot be installed: $1"
    first "$_shared/requirements.failed" "$1"
}

install_requirements() {
    if [ -e "$_shared/$_name.why" ]; then return 143; fi # ended before this process could feel a signal
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
    cd "$PAI_WORKING_DIR" || return 1
    "$_python" -m pip --version >/dev/null 2>&1 || {
        refuse_requirements "the image's $_python has no pip"
        return 1
    }
    # Into a folder of the job's own: no root is needed, and the image stays as it is. Inside of a virtual
    # environment there is no user site, so there a plain folder has to do.
    if "$_python" -c 'import sys; sys.exit(sys.prefix != sys.base_prefix)'; then
        _where=--user
    else
        _where=--target=$PYTHONUSERBASE/target
    fi
    export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
    export PIP_NO_WARN_SCRIPT_LOCATION=1 PIP_RETRIES="${PIP_RETRIES:-2}"
    say "installing the requirements"
    "$_python" -m pip install -q "$_where" -r "$_shared/requirements.txt" || return 1
    true >|"$_shared/requirements.done"
}

follow() { # PID PREEMPT_AFTER: stay with a child until it has ended, and all it left behind; its exit code in $_code
    _child=$1
    wait "$_child" 2>/dev/null # the shell would tell of a signal, which the log says better
    _code=$?
    # A trapped signal ends `wait` too; then the child is still there.
    while kill -0 "$_child" 2>/dev/null; do
        wait "$_child" 2>/dev/null
        _code=$?
    done
    # One that ended while the shell was at its trap is reaped; most shells still know its code, bash may say -1.
    if [ "$_code" -gt 128 ]; then
        wait "$_child" 2>/dev/null
        _again=$?
        if [ "$_again" -ge 0 ] && [ "$_again" -ne 127 ]; then _code=$_again; fi
    fi
    # Where the watcher ends the job, it gives what the child had started its time to end, too.
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

# Told to end before the command has begun, or while it runs: the watcher does it.
trap 'first "$_shared/stop" signal' TERM INT

_env=$(command -v env) || _env="env"
_attentive=
if "$_env" --default-signal=INT,QUIT true 2>/dev/null; then _attentive="$_env --default-signal=INT,QUIT"; fi

# A job that signals its own process group (`trap 'kill 0' EXIT`) must not mean this script.
_apart=$(command -v setsid) || _apart=

true >|"$_shared/$_name.beat"
count_kills
_kills_before=$_kills
now
_patience_ends=$((_now + 600)) # the engine may be slow in making the others
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

#!/bin/sh
# The first process of a container: becomes nobody, but starts the user's command and stays with it.
#
# It needs no one outside: it keeps the log, ends the command at its time limit, tells the other instances of a
# failure and is told of theirs, all through the folder PAI_SDK_RUN, which the instances of a job share.
#
#   go                 all instances stand; nothing is started before
#   stop               the job is to be stopped
#   failed             the instance that failed first, and its exit code
#   <instance>.env     this instance's variables
#   <instance>.why     why this instance was ended by us: stopped, timeout, peer, or preempted
#   <instance>.beat    touched while this instance is alive
#   <instance>.exit    exit code; its time is that of the end
#
# usage: sh instance.sh NAME COMMAND ARGUMENT...    POSIX shell; `sleep`, `date`, `mv` and `cat` besides.

name=$1
shift
run=$PAI_SDK_RUN
echo "the output of $name goes to $PAI_SDK_LOG on the host"
exec </dev/null >>"$run/logs/$name.log" 2>&1
. "$run/$name.env"

say() { echo "[pai-sdk] $*"; }

end() { # CODE: write down how it ended, then end
    if [ "$1" -ne 0 ] && [ ! -e "$run/$name.why" ]; then
        # Without clobbering: the first failure is the one that counts.
        (set -C && echo "$name $1" >"$run/failed") 2>/dev/null
    fi
    echo "$1" >"$run/$name.exit.part"
    if [ -n "$PAI_SDK_GIVE_TO" ]; then
        chown -R "$PAI_SDK_GIVE_TO" /ml/usercode /ml/output "$run" 2>/dev/null
    fi
    mv "$run/$name.exit.part" "$run/$name.exit"
    exit "$1"
}

signal_all() { # Everything in this container but its first process and whoever calls this.
    kill -s "$1" -- -1 2>/dev/null
}

terminate() { # Ask, wait while anything is left and the grace period lasts, then insist.
    signal_all TERM
    waited=0
    while signal_all 0 && [ "$waited" -lt $((PAI_SDK_GRACE_S * 5)) ]; do
        sleep 0.2 2>/dev/null || sleep 1
        waited=$((waited + 1))
    done
    signal_all KILL
}

end_for() { # WHY: the first reason stays
    (set -C && echo "$1" >"$run/$name.why") 2>/dev/null
    terminate
}

others_are_lost() { # An instance that has given no sign of life since our last mark, and has not ended either.
    for beat in "$run"/*.beat; do
        other=${beat%.beat}
        if [ "$run/$name.mark" -nt "$beat" ] && [ ! -e "$other.exit" ] && [ "$other" != "$run/$name" ]; then
            lost=${other##*/}
            return 0
        fi
    done
    return 1
}

watch() { # PREEMPT_AFTER: look after the command until it has ended
    begun=$(date +%s)
    looks=0
    : >"$run/$name.mark"
    while :; do
        : >"$run/$name.beat"
        now=$(date +%s)
        if [ -e "$run/stop" ]; then
            end_for stopped
            return
        elif [ "$PAI_SDK_LIMIT_S" -gt 0 ] && [ $((now - PAI_SDK_BEGUN)) -ge "$PAI_SDK_LIMIT_S" ]; then
            end_for timeout
            return
        elif [ -e "$run/failed" ]; then
            end_for peer
            return
        elif [ "$1" -gt 0 ] && [ $((now - begun)) -ge "$1" ]; then
            say "drill: $name is preempted now (SIGTERM, as when a spot instance is taken away)"
            echo preempted >"$run/$name.preempted"
            terminate
            return
        fi
        looks=$((looks + 1))
        if [ $((looks % 40)) -eq 0 ]; then
            if others_are_lost; then
                (set -C && echo "$lost 137" >"$run/failed") 2>/dev/null
            fi
            : >"$run/$name.mark"
        fi
        sleep 0.5 2>/dev/null || sleep 1
    done
}

install_requirements() {
    if [ "$PAI_SDK_RANK" -ne 0 ]; then
        while [ ! -e "$run/requirements.done" ]; do
            [ -e "$run/failed" ] || [ -e "$run/stop" ] && return 1
            sleep 0.2 2>/dev/null || sleep 1
        done
        return 0
    fi
    python=$(command -v python3 || command -v python) || {
        say "the requirements cannot be installed: this image has no Python"
        return 1
    }
    cd "$PAI_WORKING_DIR" || return 1
    "$python" -m pip --version >/dev/null 2>&1 || {
        say "the requirements cannot be installed: the image's $python has no pip"
        return 1
    }
    # Into a folder of the job's own: no root is needed, and the image stays as it is. Inside of a virtual
    # environment there is no user site, so there a plain folder has to do.
    if "$python" -c 'import sys; sys.exit(sys.prefix != sys.base_prefix)'; then
        where=--user
    else
        where=--target=$PYTHONUSERBASE/target
    fi
    export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
    PIP_NO_WARN_SCRIPT_LOCATION=1 "$python" -m pip install -q "$where" -r "$run/requirements.txt" || return 1
    : >"$run/requirements.done"
}

follow() { # PID PREEMPT_AFTER: stay with a child until it has ended, and all it left behind; its exit code in $code
    child=$1
    watch "$2" &
    watcher=$!
    wait "$child" 2>/dev/null # the shell would tell of a signal, which the log says better
    code=$?
    # A trapped signal ends `wait` too; then the child is still there.
    while kill -0 "$child" 2>/dev/null; do
        wait "$child" 2>/dev/null
        code=$?
    done
    if [ -e "$run/$name.why" ] || [ -e "$run/$name.preempted" ]; then
        wait "$watcher" 2>/dev/null # it gives what the child had started its time to end
    else
        signal_all KILL
    fi
}

# Told to end before the command has begun, or while it runs: the watcher does it.
trap ': >"$run/stop"' TERM INT

: >"$run/$name.beat"
waited=0
while [ ! -e "$run/go" ]; do
    if [ -e "$run/stop" ] || [ "$waited" -ge 600 ]; then
        echo stopped >"$run/$name.why"
        end 143
    fi
    waited=$((waited + 1))
    sleep 0.1 2>/dev/null || sleep 1
done

if [ -e "$run/requirements.txt" ]; then
    export PYTHONUSERBASE="$run/python"
    export PATH="$run/python/bin:$run/python/target/bin:$PATH"
    export PYTHONPATH="$run/python/target${PYTHONPATH:+:$PYTHONPATH}"
    PAI_SDK_BEGUN=$(date +%s)
    install_requirements &
    follow $! 0
    if [ "$code" -ne 0 ]; then
        if [ ! -e "$run/$name.why" ]; then
            if [ "$PAI_SDK_RANK" -eq 0 ]; then : >"$run/requirements.failed"; else echo peer >"$run/$name.why"; fi
        fi
        end "$code"
    fi
fi

cd "$PAI_WORKING_DIR" || end 126
: >"$run/$name.started"
PAI_SDK_BEGUN=${PAI_SDK_BEGUN:-$(date +%s)}
preempt_after=$PAI_SDK_PREEMPT_AFTER_S
while :; do
    "$@" &
    follow $! "$preempt_after"
    [ -e "$run/$name.preempted" ] || break
    rm -f "$run/$name.preempted"
    preempt_after=0
    say "drill: $name is started again; a job that resumes from its checkpoints goes on where it was"
done
end "$code"

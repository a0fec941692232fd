# Becomes a program in the container of an instance, with the variables and the folder of the job.
#
# For `sh -c`: $0 is the name of the instance, the arguments are those of the program. POSIX shell: dash, bash,
# busybox. The variables PAI_SDK_TUNNEL_SET (shell text that sets variables) and PAI_SDK_TUNNEL_FOLDER may be empty.

_env=$(command -v env) || _env=env
_shared=$PAI_SDK_SHARED
_kept=$_shared/requirements
_set=$PAI_SDK_TUNNEL_SET
_folder=$PAI_SDK_TUNNEL_FOLDER
if [ "$#" -eq 0 ]; then
    # Without a program, a login shell.
    set -- sh -l
    if command -v bash >/dev/null; then set -- bash -l; fi
    if [ -n "$SHELL" ] && [ -x "$SHELL" ]; then set -- "$SHELL" -l; fi
fi
if [ -r "$_shared/$0.settings" ]; then
    # shellcheck source=/dev/null
    . "$_shared/$0.settings"
    umask "${PAI_SDK_UMASK:-022}"
fi
# The variables of the job are not in the engine's records but in a file, which `instance.sh` reads too. It may put
# `env NAME=VALUE` before the program, for names that a shell cannot set.
# shellcheck source=/dev/null
. "$_shared/$0.env"
if [ -e "$_shared/requirements.txt" ]; then
    unset PYTHONNOUSERSITE
    export PYTHONUSERBASE="$_shared/python"
    export PATH="$_shared/python/bin:$_shared/python/target/bin:$_kept/python/bin:$_kept/python/target/bin:$PATH"
    export PYTHONPATH="$_shared/python/target:$_kept/python/target${PYTHONPATH:+:$PYTHONPATH}"
fi
eval "$_set"
unset PAI_SDK_SHARED PAI_SDK_LOG PAI_SDK_TUNNEL_SET PAI_SDK_TUNNEL_FOLDER

if [ -t 0 ]; then
    # An engine before API 1.42 sets the size of the terminal after the start.
    _rounds=0
    while [ "$_rounds" -lt 40 ] && [ "$(stty size 2>/dev/null)" = "0 0" ]; do
        sleep 0.05 2>/dev/null || sleep 1
        _rounds=$((_rounds + 1))
    done
    # A terminal that this image does not know makes editors and pagers fail.
    _is_known=
    for _each in "$TERMINFO" "${HOME:-/}/.terminfo" /etc/terminfo /lib/terminfo /usr/lib/terminfo /usr/share/terminfo; do
        if [ -n "$TERM" ] && [ -e "$_each/${TERM%"${TERM#?}"}/$TERM" ]; then _is_known=yes; fi
    done
    if [ -z "$_is_known" ]; then
        TERM=xterm-256color
        export TERM
    fi
fi

cd "${PAI_WORKING_DIR:-/}" || exit 126
if [ -n "$_folder" ]; then cd "$_folder" || exit 126; fi
exec "$@"

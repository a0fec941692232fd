# Sends a signal to the processes of one program in a container; fails if there are none.
#
# For `sh -c`, with the arguments SIGNAL SESSION MARK: all processes of the session (0 is none), and those that have
# left it but have the mark in their variables. POSIX shell: dash, bash, busybox.

_signal=$1
_session=$2
_mark=$3
_count=0
for _stat in /proc/[0-9]*/stat; do
    { read -r _line <"$_stat"; } 2>/dev/null || continue
    _pid=${_stat#/proc/}
    _pid=${_pid%/stat}
    # "pid (any name) state parent group session": the name may have spaces and parentheses.
    # shellcheck disable=SC2086 # words
    set -- ${_line##*) }
    if [ "$1" = Z ]; then continue; fi
    # Session 0 is that of all processes whose session was made outside of this container.
    if { [ "$_session" -gt 0 ] && [ "$4" = "$_session" ]; } || grep -qF "$_mark" "/proc/$_pid/environ" 2>/dev/null; then
        kill "-$_signal" "$_pid" 2>/dev/null && _count=$((_count + 1))
    fi
done
[ "$_count" -gt 0 ]

"""Modules are imported by one thread at a time; garbage collections are off meanwhile, and then as they were.

Each test is a program of its own: the test runner may have threads.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.interpreter

START = "import gc, os, threading\nfrom pai_sdk._core.names.lazy_names import load_modules\n"


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START + program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_they_are_on_again_after_an_import() -> None:
    run(
        "assert load_modules(gc.isenabled) is False\n"
        "assert gc.isenabled()\n"
        "assert load_modules(lambda: load_modules(gc.isenabled)) is False\n"
        "assert gc.isenabled()\n"
    )


@pytest.mark.parametrize("error", ["ImportError", "KeyboardInterrupt"])
def test_they_are_on_again_after_an_error(error: str) -> None:
    run(
        f"def load(): raise {error}\n"
        "try: load_modules(load)\n"
        f"except {error}: assert gc.isenabled()\n"
        "else: raise AssertionError\n"
    )


def test_they_stay_off_where_the_program_has_switched_them_off() -> None:
    run("gc.disable()\nassert load_modules(gc.isenabled) is False\nassert not gc.isenabled()\n")


def test_nothing_stays_frozen_and_garbage_is_found() -> None:
    run("""
import weakref
class Node: pass
def garbage():
    node = Node()
    node.itself = node
    return weakref.ref(node)
before, frozen = garbage(), gc.get_freeze_count()
within = load_modules(garbage)
assert gc.get_freeze_count() == frozen
gc.collect()
assert before() is None and within() is None
""")


def test_what_the_program_has_frozen_stays_frozen() -> None:
    run("""
gc.freeze()
count = gc.get_freeze_count()
load_modules(list)
assert gc.get_freeze_count() >= count > 0
""")


def test_they_stay_on_in_a_program_with_several_threads() -> None:
    """Another thread could switch them off meanwhile, and they would be on afterwards."""
    run(
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "assert load_modules(gc.isenabled) is True\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timers for signals")
def test_they_are_on_again_after_an_interrupt_at_any_moment() -> None:
    """A timer stands for Ctrl-C: it interrupts the call, and what is around it."""
    run("""
import signal
def interrupt(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
interrupts, frozen = 0, gc.get_freeze_count()
for attempt in range(5000):
    kept = None
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-5 + attempt % 50 * 1e-6)
        for _ in range(100):
            load_modules(lambda: [].append(0))
    except KeyboardInterrupt as error:
        kept = error  # with its frames, as `sys.last_value` of a shell
        interrupts += 1
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
    assert gc.isenabled(), attempt
    assert gc.get_freeze_count() == frozen, attempt
assert interrupts, "none came in time"
""")


def test_names_are_loaded_by_several_threads_at_once() -> None:
    run("""
import pai_sdk
names, errors, start = list(pai_sdk.__all__), [], threading.Barrier(8)
def load(number):
    start.wait()
    try:
        for name in names[number:] + names[:number]:
            getattr(pai_sdk, name)
    except BaseException as error:
        errors.append(error)
threads = [threading.Thread(target=load, args=[5 * number]) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not errors, errors
assert gc.isenabled()
""")


def test_a_thread_that_another_one_waits_for_is_not_held_up_for_ever() -> None:
    """One imports a module that loads a name; the other one loads that module and has the lock."""
    run("""
from pai_sdk._core.names import lazy_names
lazy_names._MAX_WAIT_S = 0.1
is_loading, imported = threading.Event(), threading.Event()
def wait():
    is_loading.set()
    assert imported.wait(30)
thread = threading.Thread(target=load_modules, args=[wait])
thread.start()
is_loading.wait()
load_modules(imported.set)
thread.join()
""")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_child_loads_names() -> None:
    run("""
import pai_sdk
child = os.fork()
if child == 0:
    pai_sdk.Processor, pai_sdk.Session
    os._exit(0 if gc.isenabled() else 1)
assert os.waitpid(child, 0)[1] == 0
pai_sdk.Processor, pai_sdk.Session
assert gc.isenabled()
""")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("owner", ["a thread", "itself"])
def test_a_child_of_a_fork_does_not_wait_for_a_thread_that_it_has_not(owner: str) -> None:
    run(
        f"""
from pai_sdk._core.names import lazy_names
lazy_names._MAX_WAIT_S = 1000
def fork():
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    else:
        load_modules(list)
is_loading, forked = threading.Event(), threading.Event()
if {owner!r} == "itself":
    load_modules(fork)
else:
    thread = threading.Thread(target=load_modules, args=[lambda: (is_loading.set(), forked.wait())], daemon=True)
    thread.start()
    is_loading.wait()
    fork()
    forked.set()
"""
    )

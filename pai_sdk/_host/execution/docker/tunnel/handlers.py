"""Programs that a tunnel runs in the container of an instance, and the errors of its engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pai_sdk._host.agent.tunnel import pumps
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk._host.execution.docker.tunnel.exec_stream import STDERR, EngineRefusedError
from pai_sdk._host.execution.docker.tunnel.instance_container import InstanceContainer
from pai_sdk._host.execution.docker.tunnel.programs import ContainerProgram, ProgramSpec, Terminal
from pai_sdk.errors import EngineNotFoundError, TunnelClosedError, TunnelRefusedError

_MAX_SIDE = 10_000  # rows and columns


def serve_program(container: InstanceContainer, stream: Stream) -> None:
    """Runs the program of a stream, and ends all its processes with the stream."""
    spec = program_spec(stream.parameters)
    with engine_errors_refused():
        program = ContainerProgram(container, spec)
    closed = threading.Event()
    stream.separate_events()
    threads: list[threading.Thread] = []
    try:
        threads.append(pumps.start(control, stream, program, closed))
        threads.append(pumps.start(write_input, stream, program))
        stream.confirm({})
        for source, chunk in program.output():
            stream.write(chunk, channel="stderr" if source == STDERR else "stdout")
        code = program.wait(closed)
        if not closed.is_set():
            stream.end()
            stream.send_exit({"code": code})
    except (OSError, TunnelClosedError):
        # The client has gone.
        pass
    finally:
        program.end()
        stream.close()
        program.disconnect()
        for thread in threads:
            thread.join()
        program.close()


def control(stream: Stream, program: ContainerProgram, closed: threading.Event) -> None:
    """Handles the events of the client, until it has closed the stream; then the program is disconnected."""
    with suppress(OSError, TunnelClosedError):
        while (event := stream.next_event()) is not None:
            size, name = event.get("resize"), event.get("signal")
            if isinstance(size, list) and len(size) == 2 and all(_is_side(side) for side in size):
                program.resize(*size)
            if isinstance(name, str):
                program.signal(name)
    closed.set()
    program.disconnect()


def write_input(stream: Stream, program: ContainerProgram) -> None:
    """Copies what the client sends to the input of the program."""
    with suppress(TunnelClosedError):
        try:
            while (message := stream.next_message()) and message[0] != "end":
                if message[0] == "stdout":
                    program.write(message[1])
            if message is not None:
                program.end_input()
        except OSError:
            # It has closed its input, or ended. What still arrives is discarded.
            pass
        while stream.next_message() is not None:
            pass


def program_spec(parameters: Mapping[str, Any]) -> ProgramSpec:
    """Returns the program that a client has requested.

    Raises:
        TunnelRefusedError: the request is malformed.
    """
    argv, variables = parameters.get("argv") or [], parameters.get("variables") or {}
    folder, terminal = parameters.get("cwd"), parameters.get("terminal")
    is_valid = (
        isinstance(argv, list)
        and all(_is_text(word) for word in argv)
        and isinstance(variables, dict)
        and all(_is_text(name) and _is_text(text) for name, text in variables.items())
        and (folder is None or _is_text(folder))
        and (terminal is None or isinstance(terminal, dict))
    )
    if not is_valid:
        raise TunnelRefusedError("InvalidRequest", "argv, variables, cwd or terminal are malformed")
    if terminal is None:
        return ProgramSpec(argv, None, variables, folder or None)
    sides = [terminal.get("rows"), terminal.get("columns")]
    rows, columns = (side if _is_side(side) else default for side, default in zip(sides, (24, 80), strict=True))
    term = terminal.get("term")
    return ProgramSpec(argv, Terminal(term if _is_text(term) else "", rows, columns), variables, folder or None)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_side(value: object) -> bool:
    return type(value) is int and 0 < value <= _MAX_SIDE


@contextmanager
def engine_errors_refused() -> Iterator[None]:
    """Raises errors of the engine as refusals of the stream."""
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except EngineRefusedError as error:
        raise _refusal(error.status, str(error)) from error
    except APIError as error:
        raise _refusal(error.status_code or 0, str(error.explanation or error)) from error
    except (DockerException, RequestException, EngineNotFoundError, OSError) as error:
        raise TunnelRefusedError("EngineAway", f"the Docker engine does not respond: {error}") from error


def _refusal(status: int, message: str) -> TunnelRefusedError:
    # 404: the container is gone; 409: it has exited, or is paused.
    code = "NotRunning" if status in (404, 409) else "EngineRefused"
    return TunnelRefusedError(code, f"the Docker engine refuses it: {message}")

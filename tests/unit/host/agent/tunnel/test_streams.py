"""Streams over a link: contents, windows, ends, and what peers do wrong."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from pai_sdk._host.agent.tunnel import frames
from pai_sdk._host.agent.tunnel.link import ResumableLink, SocketTransport
from pai_sdk._host.agent.tunnel.streams import MAX_STREAMS, WINDOW_BYTES, Stream, Tunnel
from pai_sdk.errors import TunnelClosedError, TunnelRefusedError
from tests.support.waiting import PATIENCE_S, until
from tests.unit.host.agent.tunnel.pairs import CuttingTransport, Pair


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.sessions.close(TunnelClosedError("Closed", "the test is over"))


def served(tunnel: Tunnel, handle: Callable[[Stream], None]) -> None:
    def run() -> None:
        while True:
            try:
                stream = tunnel.accept()
            except TunnelClosedError:
                return
            threading.Thread(target=handle, args=(stream,), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()


def forever(call: Callable[[], object]) -> None:
    while True:
        call()


def echo(stream: Stream) -> None:
    stream.confirm({"pid": 7})
    try:
        while (message := stream.next_message()) and message[0] != "end":
            if message[0] == "event":
                stream.write(repr(message[1]).encode(), channel="stderr")
            else:
                stream.write(message[1])
        stream.end()
        stream.send_exit({"code": 3})
    except (OSError, TunnelClosedError):
        pass
    stream.close()


def test_a_stream_with_data_events_and_exit(pair: Pair) -> None:
    client = pair.client()
    served(pair.tunnels[0], echo)
    stream = client.open("echo", argv=["a"])
    assert stream.result == {"pid": 7}
    stream.write(b"one")
    stream.send_event({"signal": "INT"})
    stream.end()
    messages = list(stream.messages())
    assert messages == [("stdout", b"one"), ("stderr", b"{'signal': 'INT'}"), ("exit", {"code": 3})]
    assert stream.wait_exit(0) == 3
    assert stream.read() == b""


def test_reading_to_the_end_and_then_the_exit(pair: Pair) -> None:
    client = pair.client()
    served(pair.tunnels[0], echo)
    with client.open("echo") as stream:
        stream.write(b"0123456789")
        stream.end()
        assert [stream.read(4), stream.read(4), stream.read(), stream.read(), stream.read()] == [
            b"0123",
            b"4567",
            b"89",
            b"",
            b"",
        ]
        assert stream.wait_exit(PATIENCE_S) == 3


def test_a_refused_stream(pair: Pair) -> None:
    client = pair.client()
    served(pair.tunnels[0], lambda stream: stream.refuse("NotFound", "no such file"))
    for _ in range(MAX_STREAMS + 1):
        with pytest.raises(TunnelRefusedError) as caught:
            client.open("read_archive", path="/none")
        assert caught.value.code == "NotFound"


def test_the_server_opens_streams_too(pair: Pair) -> None:
    client = pair.client()
    accepted: list[Stream] = []
    thread = threading.Thread(target=lambda: accepted.append(client.accept(20)))
    thread.start()

    def answer() -> None:
        thread.join()
        stream = accepted[0]
        assert (stream.kind, stream.parameters) == ("accepted", {"listener": 1})
        stream.write(b"hello")
        stream.end()

    answering = threading.Thread(target=answer)
    answering.start()
    stream = pair.tunnels[0].open("accepted", listener=1)
    assert stream.read() == b"hello"
    assert stream.read() == b""
    answering.join()
    with pytest.raises(TimeoutError):
        client.accept(0)


def test_closed_streams_are_forgotten_by_both_ends(pair: Pair) -> None:
    client = pair.client()
    served(pair.tunnels[0], echo)
    for number in range(2 * MAX_STREAMS):
        stream = client.open("echo")
        if number % 2:
            stream.end()
            assert stream.wait_exit(PATIENCE_S) == 3
        stream.close()
    until(lambda: not client._streams and not pair.tunnels[0]._streams)


def test_only_so_many_streams(pair: Pair) -> None:
    client = pair.client()
    served(pair.tunnels[0], lambda stream: stream.confirm())
    for _ in range(MAX_STREAMS):
        client.open("idle")
    with pytest.raises(TunnelRefusedError) as caught:
        client.open("idle")
    assert caught.value.code == "TooManyStreams"


def test_a_stream_that_nobody_reads_stops_its_writer_and_no_other(pair: Pair) -> None:
    client = pair.client()
    written = threading.Semaphore(0)

    def flood(stream: Stream) -> None:
        if stream.kind == "echo":
            echo(stream)
            return
        with suppress(BrokenPipeError, TunnelClosedError):
            while True:
                stream.write(bytes(16 * 1024))
                written.release()

    served(pair.tunnels[0], flood)
    full = client.open("flood")
    with client.open("echo") as other:
        for _ in range(100):
            other.write(b"x")
            assert other.read() == b"x"
    frames_written = 0
    while written.acquire(timeout=PATIENCE_S if frames_written * 16 * 1024 <= WINDOW_BYTES * 0.9 else 0.3):
        frames_written += 1
    assert WINDOW_BYTES * 0.9 < frames_written * 16 * 1024 <= WINDOW_BYTES
    assert full.read()
    full.close()


def test_writes_after_the_peer_has_closed(pair: Pair) -> None:
    client = pair.client()
    served(pair.tunnels[0], lambda stream: (stream.confirm(), stream.close()))
    stream = client.open("closing")
    with pytest.raises(BrokenPipeError):
        forever(lambda: stream.write(bytes(100_000)))
    assert stream.read() == b""
    with pytest.raises(TunnelClosedError):
        stream.wait_exit(PATIENCE_S)


def test_the_end_of_a_tunnel_ends_its_streams(pair: Pair) -> None:
    client = pair.client()
    served(pair.tunnels[0], lambda stream: stream.confirm())
    stream = client.open("idle")
    pair.sessions.close(TunnelClosedError("JobEnded", "the job has ended"))
    with pytest.raises(TunnelClosedError) as caught:
        stream.read()
    assert caught.value.code == "JobEnded"
    with pytest.raises(TunnelClosedError):
        client.open("idle")
    with pytest.raises(TunnelClosedError):
        client.accept(PATIENCE_S)
    with pytest.raises(TunnelClosedError):
        stream.write(b"x")


class Content:
    """A random content without an end, for a writer and a reader."""

    def __init__(self, seed: int) -> None:
        self.written, self._expected, self._buffer = random.Random(seed), random.Random(seed), b""

    def write(self, stream: Stream, stop: threading.Event) -> None:
        while not stop.is_set():
            stream.write(self.written.randbytes(5000))
            time.sleep(0)
        stream.end()

    def check(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 5000:
            assert self._buffer[:5000] == self._expected.randbytes(5000)
            self._buffer = self._buffer[5000:]

    @property
    def is_complete(self) -> bool:
        return not self._buffer and self.written.random() == self._expected.random()


def test_every_byte_arrives_once_whatever_is_cut(pair: Pair) -> None:
    """1,000 cuts at random frames, also within a frame and during a join."""
    chance = random.Random(40)
    cuts = 0

    def dial() -> SocketTransport:
        nonlocal cuts
        cuts += 1
        return CuttingTransport(pair.connection(), chance, 12)

    client = pair.client(dial)
    served(pair.tunnels[0], echo)
    streams = [(client.open("echo"), Content(seed)) for seed in range(3)]
    stop = threading.Event()
    writers = [threading.Thread(target=content.write, args=(stream, stop)) for stream, content in streams]
    for writer in writers:
        writer.start()
    while cuts < 1000:
        for stream, content in streams:
            content.check(stream.read())
    stop.set()
    for stream, content in streams:
        while data := stream.read():
            content.check(data)
        assert stream.wait_exit(PATIENCE_S) == 3
    for writer in writers:
        writer.join()
    assert all(content.is_complete for _, content in streams)
    assert len(pair.tunnels) == 1


def test_a_session_that_nobody_joins_again_ends() -> None:
    pair = Pair(rejoin_s=0.2)
    client = pair.client()
    served(pair.tunnels[0], echo)
    stream = client.open("echo")
    pair.is_down = True
    pair.cut()
    with pytest.raises(TunnelClosedError):
        stream.read()
    until(lambda: pair.sessions.expire() or len(pair.sessions) == 0)
    assert [type(error) for error in pair.errors] == [TunnelClosedError]
    assert pair.errors[0].code == "ConnectionLost"


def test_a_session_waits_while_the_server_cannot_be_reached(pair: Pair) -> None:
    client = pair.client()
    served(pair.tunnels[0], echo)
    stream = client.open("echo")
    pair.is_down = True
    pair.cut()
    stream.write(b"during the pause")
    pair.is_down = False
    assert stream.read() == b"during the pause"


def test_the_peer_of_a_closed_tunnel_ends_at_once(pair: Pair) -> None:
    for _ in range(100):
        pair.client().close()
    until(lambda: len(pair.sessions) == 0)
    assert {error.code for error in pair.errors} == {"Ended"}


def test_a_closed_tunnel_does_not_dial_again(pair: Pair) -> None:
    for _ in range(30):
        before = len(pair.transports)
        pair.client().close()
        assert len(pair.transports) == before + 1


def greeting(session: str, epoch: int, received: int = 0, *, new: bool = True) -> bytes:
    content = {"session": session, "epoch": epoch, "received": received, "new": new}
    return frames.with_json(frames.HELLO, content)


def test_an_older_connection_cannot_join(pair: Pair) -> None:
    first, second, late = (SocketTransport(pair.connection()) for _ in range(3))
    session = "ab" * 16
    first.send(greeting(session, 1))
    assert frames.kind_of(first.receive(PATIENCE_S)) == frames.WELCOME
    second.send(greeting(session, 3))
    assert frames.kind_of(second.receive(PATIENCE_S)) == frames.WELCOME
    with pytest.raises(ConnectionError):
        forever(lambda: first.receive(PATIENCE_S))
    first.close()
    late.send(greeting(session, 2))
    reply = late.receive(PATIENCE_S)
    assert frames.kind_of(reply) == frames.REFUSED
    assert frames.json_of(reply[1:])["code"] == "Replaced"
    second.close()
    late.close()


@pytest.mark.parametrize(
    ("greeting_", "code"),
    [
        (greeting("cd" * 16, 1, 5), "SessionUnknown"),
        (greeting("cd" * 16, 1, new=False), "SessionUnknown"),
        (greeting("../etc", 1), ""),
        (greeting("cd" * 16, 1, -1), ""),
        (frames.with_json(frames.HELLO, {}), ""),
        (frames.simple(frames.PING), ""),
    ],
    ids=["counts", "not new", "session", "negative", "empty", "no greeting"],
)
def test_greetings_that_are_refused(pair: Pair, greeting_: bytes, code: str) -> None:
    transport = SocketTransport(pair.connection())
    transport.send(greeting_)
    if code:
        assert frames.json_of(transport.receive(PATIENCE_S)[1:])["code"] == code
    with pytest.raises(ConnectionError):
        transport.receive(PATIENCE_S)
    transport.close()
    assert pair.tunnels == []


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (frames.with_json(frames.WELCOME, {"received": "none"}), "InvalidResponse"),
        (frames.with_json(frames.WELCOME, {"received": 7}), "InvalidResponse"),
        (b"HTTP/1.1 400", "InvalidResponse"),
        (b"", "Timeout"),
    ],
    ids=["no count", "counts", "another protocol", "silent"],
)
def test_a_server_that_sends_no_welcome(monkeypatch: pytest.MonkeyPatch, response: bytes, code: str) -> None:
    monkeypatch.setattr("pai_sdk._host.agent.tunnel.link.HANDSHAKE_S", 0.2)
    near, far = socket.socketpair()
    if response:
        SocketTransport(far).send(response)
    with pytest.raises(TunnelRefusedError) as refused:
        ResumableLink.connect(lambda: SocketTransport(near), rejoin_s=20)
    assert refused.value.code == code
    far.close()


def test_a_detached_client_that_closes_ends_its_session(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.rejoin_s = 4 * PATIENCE_S
    monkeypatch.setattr("pai_sdk._host.agent.tunnel.link._MIN_PAUSE_S", 2 * PATIENCE_S)
    dialed = threading.Semaphore(0)

    def dial() -> SocketTransport:
        dialed.release()
        return pair.dial()

    client = pair.client(dial)
    assert dialed.acquire(timeout=PATIENCE_S)
    pair.is_down = True
    pair.cut()
    assert dialed.acquire(timeout=PATIENCE_S)
    pair.is_down = False
    client.close()
    until(lambda: bool(pair.errors))
    assert isinstance(pair.errors[0], TunnelClosedError)
    assert pair.errors[0].code == "Ended"


def test_the_instance_is_selected_before_the_greeting(pair: Pair) -> None:
    transport = SocketTransport(pair.connection())
    transport.send(frames.with_json(frames.SELECT, {"instance": "job-worker-1"}))
    transport.send(greeting("ef" * 16, 1))
    assert frames.kind_of(transport.receive(PATIENCE_S)) == frames.WELCOME
    assert pair.tunnels[0].instance == "job-worker-1"
    transport.close()


def test_random_frames_end_their_session_only(pair: Pair) -> None:
    """10,000 of them, in many sessions; the server and another session continue."""
    client = pair.client()
    served(pair.tunnels[0], echo)
    stream = client.open("echo")
    chance = random.Random(41)
    sent = 0
    while sent < 10_000:
        raw = pair.connection()
        transport = SocketTransport(raw)
        try:
            transport.send(greeting(f"{sent:032x}", 1))
            assert frames.kind_of(transport.receive(20)) == frames.WELCOME
            for number in range(1, 100):
                sent += 1
                transport.send(random_frame(chance, number))
        except OSError:
            pass
        finally:
            transport.close()
        # Nobody joins these again.
        for link in list(pair.sessions._links.values()):
            if link.session != client._link.session:
                link.end(TunnelClosedError("Closed", "the test is over"))
    stream.write(b"still here")
    assert stream.read() == b"still here"


def random_frame(chance: random.Random, number: int) -> bytes:
    body = chance.choice([b"", b"{}", b"\0", b"[" * 1000, b'{"kind":"echo"}', chance.randbytes(9)])
    kind = chance.randrange(1, 11)
    inner = frames.inner(chance.randrange(0, 12), chance.choice([0, 1, 2, 3, 5, 2**32 - 1]), body)
    return chance.choice(
        [
            chance.randbytes(chance.randrange(1, 40)),
            frames.numbered(number, inner),
            frames.numbered(number, frames.inner(frames.OPEN, 2 * number + 1, b'{"kind":"echo"}')),
            bytes((kind,)) + body,
            frames.ack(chance.randrange(3)),
            frames.numbered(chance.choice([0, number, 2**64 - 1]), inner),
        ]
    )


def test_a_peer_that_never_reads_is_sent_one_response_to_its_pings(pair: Pair) -> None:
    connection = pair.connection()
    transport = SocketTransport(connection)
    transport.send(greeting("12" * 16, 1))
    transport.receive(PATIENCE_S)
    connection.settimeout(0.5)
    # Pings are still read when the socket of the responses is full.
    with suppress(ConnectionError, TimeoutError):
        for _ in range(300):
            transport.send_many([frames.simple(frames.PING)] * 100)
    (link,) = pair.sessions._links.values()
    assert len(link._replies) <= 1
    transport.close()


def test_a_peer_that_never_reads_cannot_cause_any_number_of_responses(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pai_sdk._host.agent.tunnel.link._MAX_BYTES", 500_000)
    connection = pair.connection()
    transport = SocketTransport(connection)
    transport.send(greeting("12" * 16, 1))
    transport.receive(PATIENCE_S)
    with suppress(ConnectionError):
        for number in range(1, 10_000):
            opening = frames.inner(frames.OPEN, 2 * number - 1, b'{"kind":"x"}')
            transport.send(frames.numbered(number, opening))
    with pytest.raises(ConnectionError):
        forever(lambda: transport.receive(PATIENCE_S))
    transport.close()
    until(lambda: pair.tunnels[0].is_ended and len(pair.sessions) == 0)


def test_data_of_a_stream_that_nobody_has_accepted_end_the_session(pair: Pair) -> None:
    """Otherwise a job could fill the memory of its clients."""
    transport = SocketTransport(pair.connection())
    transport.send(greeting("56" * 16, 1))
    transport.receive(PATIENCE_S)
    transport.send(frames.numbered(1, frames.inner(frames.OPEN, 1, b'{"kind":"x"}')))
    transport.send(frames.numbered(2, frames.inner(frames.DATA, 1, b"\0data")))
    with pytest.raises(ConnectionError):
        transport.receive(PATIENCE_S)
    transport.close()


def test_more_data_than_the_window_ends_the_session(pair: Pair) -> None:
    transport = SocketTransport(pair.connection())
    transport.send(greeting("34" * 16, 1))
    transport.receive(PATIENCE_S)
    transport.send(frames.numbered(1, frames.inner(frames.OPEN, 1, b'{"kind":"x"}')))
    pair.tunnels[0].accept(PATIENCE_S).confirm()
    transport.receive(PATIENCE_S)
    with suppress(ConnectionError):
        for number in range(2, 100):
            transport.send(
                frames.numbered(number, frames.inner(frames.DATA, 1, b"\0"), bytes(frames.MAX_DATA_BYTES))
            )
    with pytest.raises(ConnectionError):
        forever(lambda: transport.receive(PATIENCE_S))
    transport.close()
    again = SocketTransport(pair.connection())
    again.send(greeting("34" * 16, 2, new=False))
    assert frames.kind_of(again.receive(PATIENCE_S)) == frames.REFUSED
    again.close()


def test_a_link_whose_peer_is_silent_is_closed() -> None:
    ours, other = socket.socketpair()
    peer = SocketTransport(other)

    def welcome() -> SocketTransport:
        return SocketTransport(ours)

    answering = threading.Thread(
        target=lambda: (peer.receive(PATIENCE_S), peer.send(frames.with_json(frames.WELCOME, {"received": 0})))
    )
    answering.start()
    link = ResumableLink.connect(welcome, rejoin_s=0.1)
    answering.join()
    link.silence_s, link.ping_s = 0.2, 0.05
    ended = threading.Event()
    link.start(lambda _: None, lambda _: ended.set())
    assert ended.wait(PATIENCE_S)
    assert frames.kind_of(peer.receive(PATIENCE_S)) == frames.PING
    peer.close()


class CountingTransport(SocketTransport):
    """Counts the frames of both directions."""

    count = 0

    def send_many(self, frames) -> None:
        self.count += len(frames)
        super().send_many(frames)

    def receive(self, timeout_s: float | None) -> bytes:
        frame = super().receive(timeout_s)
        self.count += 1
        return frame


def test_a_large_copy_has_few_frames(pair: Pair) -> None:
    # Each costs the service, which relays it, as much as the copy of a hundred kilobytes.
    transport = CountingTransport(pair.connection())
    client = pair.client(lambda: transport)
    size = 8 << 20

    def send(stream: Stream) -> None:
        stream.write(bytes(size))
        stream.end()

    served(pair.tunnels[0], send)
    stream = client.open("send")
    while data := stream.read():
        size -= len(data)
    assert size == 0
    assert transport.count <= 8 * 16

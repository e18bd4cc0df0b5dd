"""Starts `toolcrib` and other Python programs of the tests by forking a process that has imported what they need.

Importing `mcp` takes most of the time that a gateway needs to start, and several hundred tests start one. `install`
therefore catches the starts of a few known commands: a helper process, the zygote, has imported the modules and forks
for each of them. What is forked is a real process: a child of the test process with the given arguments, environment,
working directory and standard streams, that is waited for, signalled and killed like any other.

A command that the zygote cannot imitate is started as usual, and so are all commands in tests with the mark
`true_start`. This needs Linux; on other systems everything is started as usual.
"""

from __future__ import annotations

import ctypes
import gc
import io
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).parents[1]

TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))

_MODULE = f"{sys.executable} -m"
_GATEWAY = ("toolcrib.cli.serve_command", "toolcrib.surfaces.mcp_gateway.stdio", "toolcrib.surfaces.http.http_serving")
_AGENT = (*_GATEWAY, "toolcrib.cli.acp_command", "toolcrib.surfaces.acp_agent.serving")

PRELOADED: Mapping[str, Sequence[str]] = {
    f"{TOOLCRIB} ": _GATEWAY,
    f"{_MODULE} toolcrib ": _GATEWAY,
    f"{_MODULE} toolcrib acp ": (*_AGENT, "toolcrib.adapters.pydantic_ai.model_script"),
    f"{_MODULE} toolcrib acp --model anthropic:": (*_AGENT, "pydantic_ai.models.anthropic"),
    f"{_MODULE} toolcrib acp --model openai:": (*_AGENT, "pydantic_ai.models.openai"),
    f"{_MODULE} toolcrib acp --model openai-chat:": (*_AGENT, "pydantic_ai.models.openai"),
    f"{_MODULE} tests.servers.over_http ": ("mcp.server.mcpserver", "uvicorn"),
}
"""The modules that a command imports, by the prefix of the command. The longest prefix counts. Each set of modules has
its own zygote."""

_PR_SET_CHILD_SUBREAPER = 36
_SETTLED_AT_START = ("PYTHON", "LC_", "LANG", "LD_")
"""Prefixes of variables that an interpreter reads only when it starts."""


_READ_LATER = "PYTHON_KEYRING_BACKEND"
"""A variable with such a prefix that only a package reads, when it is used. All tests set it."""


def _settled(environ: Mapping[str, str]) -> set[tuple[str, str]]:
    found = {(name, value) for name, value in environ.items() if name.startswith(_SETTLED_AT_START)}
    return {(name, value) for name, value in found if name != _READ_LATER}


_OURS = _settled(os.environ)
"""The variables of every zygote. A zygote that is already running does not have variables that a test sets later."""


# -- in the test process ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Start:
    """A process that `subprocess` requests from the operating system."""

    command: Sequence[str]
    folder: Path
    environ: Mapping[str, str]
    streams: Sequence[int]
    """Descriptors for its three standard streams."""
    new_session: bool
    is_plain: bool
    """Whether the zygote can imitate the whole request, which excludes extra descriptors and a different user."""

    @classmethod
    def read(cls, given: Sequence[Any]) -> _Start:
        """Read the arguments of `_posixsubprocess.fork_exec`."""
        words, _, close_fds, kept_fds, folder, environ = given[:6]
        stdin, _, _, stdout, _, stderr, _, error_pipe, restore_signals, new_session = given[6:16]
        group_user_and_function = given[16:22]
        return cls(
            [os.fsdecode(word) for word in words],
            Path.cwd() if folder is None else Path(os.fsdecode(folder)),
            dict(os.environ) if environ is None else dict(os.fsdecode(pair).split("=", 1) for pair in environ),
            # -1 means that the process uses our own stream.
            [own if fd == -1 else fd for own, fd in enumerate((stdin, stdout, stderr))],
            bool(new_session),
            is_plain=bool(close_fds and restore_signals)
            and tuple(kept_fds) == (error_pipe,)
            and tuple(group_user_and_function) == (-1, None, None, None, -1, None),
        )

    def can_be_forked(self) -> bool:
        return self.is_plain and self.folder.is_dir() and _settled(self.environ) <= _OURS


@dataclass(slots=True)
class Zygotes:
    """The helper processes of one test process, each started when it is first needed."""

    enabled: bool = True
    _running: dict[Sequence[str], _Running] = field(default_factory=dict[Sequence[str], "_Running"])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fork(self, start: _Start) -> int | None:
        """Return the id of a forked process for `start`, or None if the process must be started as usual."""
        line = " ".join([*start.command, ""])
        begin = max((begin for begin in PRELOADED if line.startswith(begin)), key=len, default=None)
        if begin is None or not self.enabled or not start.can_be_forked():
            return None
        preloaded = PRELOADED[begin]
        asked = {
            "command": start.command,
            "environ": start.environ,
            "folder": str(start.folder),
            "new_session": start.new_session,
        }
        with self._lock, _adopting():
            if preloaded not in self._running:
                self._running[preloaded] = _started(preloaded)
            message = json.dumps(asked).encode()
            connection = self._running[preloaded].connection
            socket.send_fds(connection, [len(message).to_bytes(8, "big")], start.streams)
            connection.sendall(message)
            return int.from_bytes(_exactly(connection, 8), "big")

    def close(self) -> None:
        """End the zygotes. The processes that they forked keep running."""
        for running in self._running.values():
            running.connection.close()
            running.process.wait()
        self._running.clear()


@dataclass(frozen=True, slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    connection: socket.socket


def _started(preloaded: Sequence[str]) -> _Running:
    ours, theirs = socket.socketpair()
    with theirs:
        # A thread in the zygote would not exist in the forked process.
        unsettled = {key: value for key, value in os.environ.items() if not key.startswith(_SETTLED_AT_START)}
        environ = {**unsettled, **dict(_OURS), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.zygote", str(theirs.fileno()), *preloaded]
        process = subprocess.Popen(command, cwd=ROOT, env=environ, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    return _Running(process, ours)


@contextmanager
def _adopting() -> Generator[None]:
    """For the block, descendants of this process that lose their parent become its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _prctl(option: int, value: int) -> None:
    arguments = (ctypes.c_ulong(argument) for argument in (value, 0, 0, 0))
    if ctypes.CDLL(None, use_errno=True).prctl(option, *arguments) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _exactly(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        part = connection.recv(size - len(read))
        if not part:
            raise EOFError("the zygote is gone")
        read += part
    return read


@contextmanager
def installed() -> Generator[Zygotes]:
    """Have a zygote start the known commands for the block."""
    zygotes = Zygotes()
    if sys.platform != "linux":
        yield zygotes
        return
    usual = cast("Any", subprocess)._fork_exec

    def fork_exec(*given: Any) -> int:
        forked = zygotes.fork(_Start.read(given))
        return usual(*given) if forked is None else forked

    cast("Any", subprocess)._fork_exec = fork_exec
    try:
        yield zygotes
    finally:
        cast("Any", subprocess)._fork_exec = usual
        zygotes.close()


# -- in the zygote ----------------------------------------------------------------------------------------------------


def _serve(connection: socket.socket) -> list[str]:
    """Fork on each request. Returns in each forked process, with the command that it must run."""
    while True:
        header, streams, _, _ = socket.recv_fds(connection, 8, 3)
        if not header:
            sys.exit()
        header += _exactly(connection, 8 - len(header)) if len(header) < 8 else b""
        asked: dict[str, Any] = json.loads(_exactly(connection, int.from_bytes(header, "big")))
        told, telling = os.pipe()
        # Two forks: a process that loses its parent at once becomes a child of the test process.
        if (between := os.fork()) == 0:
            if (pid := os.fork()) != 0:
                os.write(telling, pid.to_bytes(8, "big"))
                os._exit(0)
            for fd in (told, telling):
                os.close(fd)
            connection.close()
            _take_over(streams, asked)
            return asked["command"]
        os.waitpid(between, 0)
        connection.sendall(os.read(told, 8))
        for fd in (*streams, told, telling):
            os.close(fd)


def _take_over(streams: Sequence[int], asked: Mapping[str, Any]) -> None:
    """Set up this process as `exec` would have done."""
    if asked["new_session"]:
        os.setsid()
    for own, fd in enumerate(streams):
        os.dup2(fd, own)
    for fd in {*streams}:
        os.close(fd)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    for name, fd, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        raw = open(fd, f"{mode}b", closefd=False)  # noqa: SIM115
        was = getattr(sys, name)
        wrapped = io.TextIOWrapper(raw, was.encoding, was.errors, line_buffering=os.isatty(fd) or name == "stderr")
        setattr(sys, name, wrapped)
        setattr(sys, f"__{name}__", wrapped)


def _run(command: Sequence[str]) -> None:
    if command[0] == sys.executable:
        _, _, module, *words = command
        sys.path[0] = str(Path.cwd())
        sys.argv = ["-m", *words]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(command[0]).parent)
        sys.argv = [*command]
        runpy.run_path(command[0], run_name="__main__")


def _main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        import_module(module)
    gc.collect()
    gc.freeze()  # garbage collection in a forked process would copy all shared memory
    _run(_serve(connection))


if __name__ == "__main__":
    _main()

"""Run the program in real processes that start in milliseconds: forks of one that has loaded everything.

Each run is a separate process with its own signals, folder, environment and exit code.
"""

import atexit
import contextlib
import gc
import hashlib
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types
from dataclasses import dataclass
from pathlib import Path

LONGEST = 300.0  # seconds until a run counts as hanging; on a quiet machine each takes about one


@dataclass(frozen=True)
class Done:
    """Result of a run; a negative code is the signal that killed it."""

    code: int
    out: str
    err: str


class WarmProgram:
    """Runs the program in forks of a process that is ready; their output goes to files in a folder."""

    def __init__(self, folder):
        self.folder = Path(folder)
        called = [sys.executable, __file__]
        self.process = subprocess.Popen(called, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._numbers = itertools.count()
        self.pid = self._answer()["pid"]

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the process that runs are forked from has ended")
        return json.loads(line)

    def run(self, *arguments, cwd, code="", kill_at=None, env=None):
        """Run a command of manifoldrf, or of `python -m reproduction` if "reproduction" is the first argument.

        ``code`` is executed before it; without arguments there is only the code. ``kill_at`` is (name of a
        function, number of the call, signal): the process sends the signal to itself.
        """
        number = next(self._numbers)
        out, err = (self.folder / f"{number}.{name}" for name in ("out", "err"))
        request = {"arguments": [str(argument) for argument in arguments], "cwd": str(cwd), "code": code}
        request |= {"kill_at": kill_at, "env": env or {}, "out": str(out), "err": str(err)}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        status = self._answer()["status"]
        return Done(status, out.read_text(), err.read_text())

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def contents(folder):
    """Everything below a folder, empty folders included."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "a folder"
        for name, path in found.items()
    }


def _warm_up():
    """Load the modules that commands need. No thread may run when the process forks."""
    for name in ("manifoldrf.storage", "manifoldrf.cli.program", "manifoldrf.explorer.page"):
        importlib.import_module(name)
    importlib.import_module("reproduction.commands")
    with contextlib.suppress(ModuleNotFoundError):  # the commands need no torch
        importlib.import_module("torch._dynamo")  # optimisers load it, which takes two seconds
    importlib.import_module("matplotlib.pyplot")
    mrf = importlib.import_module("manifoldrf")
    points = mrf.Sphere().grid(100)
    features = mrf.ManifoldRandomFeatures(mrf.HeatKernel(0.3), n_jobs=1, random_state=0).fit(points)
    features.summary()


def _serve():
    """Fork for every line of stdin; the child returns the request, the parent returns None at the end."""
    _warm_up()
    gc.freeze()  # keeps memory shared that forks do not use
    print(json.dumps({"pid": os.getpid()}), flush=True)  # noqa: T201 - an answer
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            return json.loads(line)
        print(json.dumps({"status": _wait(pid)}), flush=True)  # noqa: T201 - an answer
    return None


def _wait(pid):
    """Exit code of a process."""
    end = time.monotonic() + LONGEST
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def _become(request):
    """Continue as the program."""
    for number, path in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the tests were started with
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    exec(request["code"], {"kill_at": kill_at})
    if request["kill_at"]:
        kill_at(*request["kill_at"])
    if request["arguments"]:
        first, *rest = request["arguments"]
        own = first == "reproduction"
        sys.argv = ["program", *(rest if own else request["arguments"])]
        try:
            importlib.import_module("reproduction.__main__" if own else "manifoldrf.cli").main()
        except SystemExit as stopped:
            _end(stopped.code or 0)


def _end(code):
    """End as Python does, without the teardown of modules, which takes longer than most runs."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            code = 120
    os._exit(code)


def kill_at(place, nth, number):
    """Send a signal to this process at the nth call of a function, or at the nth call into a module."""
    calls = itertools.count(1)

    def count():
        if next(calls) == nth:
            os.kill(os.getpid(), number)

    owner, name = _find(place)
    target = getattr(owner, name)
    if isinstance(target, types.ModuleType):
        _watch_calls(target.__file__, count)
        return

    def counted(*args, **kwargs):
        count()
        return target(*args, **kwargs)

    setattr(owner, name, counted)


def _find(place):
    """The owner and the name of a function or module such as "features.fitting" or "reproduction.record"."""
    *path, name = place.split(".")
    owner = importlib.import_module(path.pop(0) if path[:1] == ["reproduction"] else "manifoldrf")
    for part in path:
        with contextlib.suppress(ImportError, AttributeError):
            importlib.import_module(f"{owner.__name__}.{part}")
        owner = getattr(owner, part)
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module(f"{owner.__name__}.{name}")
    return owner, name


def _watch_calls(file, count):
    """Call ``count`` at each call of a function that is defined in a file; an error of it is raised there."""

    def trace(frame, _event, _argument):
        if frame.f_code.co_filename == file:
            count()

    sys.settrace(trace)


if __name__ == "__main__":
    # The folder of this file is on the path, and has a folder `reproduction` of tests.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    wanted = _serve()
    if wanted is not None:
        _become(wanted)

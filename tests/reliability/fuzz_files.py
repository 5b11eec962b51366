"""Damaged files by the thousand, read in processes of their own under limits: `make fuzz`.

A case is a loader, a seed and a number: the same three give the same bytes. Allowed is what is documented: a thing
that is valid and can be used, or an error of one sentence that names the file. Everything else is reported, and the
bytes are kept: a crash, another error, a warning, more than five seconds of work, more memory than ten times the
file and 200 MB, and any file opened but the one that was asked for.
"""

import argparse
import gc
import mmap
import os
import random
import resource
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from memory import peak_memory, start_memory
from reliability.loaders import LOADERS

MEMORY_FACTOR, MEMORY_EXTRA = 10, 200_000_000
_BATCH = 500  # cases of one process
_FORBIDDEN = {
    *("open", "os.remove", "os.rename", "os.mkdir", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"),
    *("os.fork", "socket.connect", "socket.getaddrinfo", "urllib.Request", "pickle.find_class"),
}
_SLOTS = struct.Struct("<qqqdq")  # number, accepted, refused, slowest, largest memory


@dataclass
class Tally:
    """What became of the cases of a loader."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    memory: int = 0
    failures: list = field(default_factory=list)  # (number, reason, bytes)


def make_case(loader, seed, number):
    """The bytes of a case."""
    rng = random.Random(f"{loader.name} {seed} {number}")
    data = rng.choice(loader.seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(loader.mutations)
        try:
            data = change(rng, data, loader.seeds)
        except Exception:  # noqa: BLE001 - a mutation that knows the format finds it broken already
            data = loader.mutations[-1](rng, data, loader.seeds)
    return data


def fuzz(loader, n_cases, seed=0):
    """Try so many cases of a loader, a batch in each process. Returns a Tally."""
    return _run(loader, lambda number: make_case(loader, seed, number), n_cases)


def attempt(loader, *files):
    """Try files of one's own under the same limits. Returns a Tally."""
    return _run(loader, files.__getitem__, len(files))


def _run(loader, case_of, n_cases):
    tally = Tally()
    with tempfile.TemporaryDirectory(
        prefix="fuzz", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        path = Path(folder) / f"case{loader.suffix}"
        loader.prepare(path.parent)
        for data in loader.seeds:  # lazy imports and compilation happen here, once for all processes
            path.write_bytes(data)
            loader.use(loader.load(path))
        gc.freeze()
        number = 0
        while number < n_cases:
            number = _run_batch(loader, case_of, (number, min(n_cases, number + _BATCH)), path, tally)
    return tally


def _run_batch(loader, case_of, span, path, tally):
    """Run cases in a child until it is done or dies; gives the number of the next case."""
    shared = mmap.mmap(-1, 4096)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: the child only reads files
        child = os.fork()
    if child == 0:
        os.close(reader)
        _child(loader, case_of, span, path, shared, writer)
    os.close(writer)
    reports, status, hung = _wait(child, reader, shared, 12 * loader.seconds)
    number, accepted, refused, slowest, memory = _SLOTS.unpack_from(shared)
    done = number - span[0] + 1
    if hung or status != 0:
        reason = f"no end after {12 * loader.seconds:g} s" if hung else f"the process died with status {status}"
        reports.append((number, reason))
    else:
        done, number = span[1] - span[0], span[1] - 1
    tally.cases += done
    tally.accepted += accepted
    tally.refused += refused
    tally.slowest, tally.memory = max(tally.slowest, slowest), max(tally.memory, memory)
    tally.failures += [(place, reason, case_of(place)) for place, reason in reports]
    return number + 1


def _wait(child, reader, shared, longest):
    """Reports of a child, its exit status, and whether it had to be ended."""
    text, last, since, hung = b"", -1, time.monotonic(), False
    while True:
        ready, _, _ = select.select([reader], [], [], 0.5)
        if ready:
            part = os.read(reader, 65536)
            if not part:
                break
            text += part
        number = _SLOTS.unpack_from(shared)[0]
        if number != last:
            last, since = number, time.monotonic()
        elif time.monotonic() - since > longest:  # compiled code does not hear the alarm
            hung = True
            os.kill(child, signal.SIGKILL)
            break
    os.close(reader)
    _, status = os.waitpid(child, 0)
    reports = [line.split("\t", 1) for line in text.decode("utf-8", "replace").splitlines() if "\t" in line]
    return [(int(number), reason) for number, reason in reports], status, hung


# ---------------------------------------------------------------------------------------- inside the process
class _TooLongError(BaseException):
    pass


class _Watch:
    """What Python's audit events say of a case."""

    def __init__(self):
        self.allowed, self.seen, self.on = set(), [], False
        sys.addaudithook(self._hear)

    def _hear(self, event, args):
        if not self.on or event not in _FORBIDDEN:
            return
        place = str(args[0]) if args else ""
        # Modules and compiled loops are read on first use, from caches beside the code.
        if place not in self.allowed and "__pycache__" not in place and not _in_numba():
            self.seen.append(f"{event} {args[:1]!r}")


def _in_numba():
    """Whether numba is at work: it keeps compiled loops in files that it pickles itself."""
    frame = sys._getframe()
    while frame is not None and "/numba/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None


def _child(loader, case_of, span, path, shared, writer):
    """Run the cases of a batch; never returns."""
    counts = [0, 0, 0.0, 0]
    try:
        watch = _Watch()
        watch.allowed = {str(path), *(str(path.parent / name) for name in loader.beside)}
        signal.signal(signal.SIGPROF, _alarm)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            for number in range(*span):
                _SLOTS.pack_into(shared, 0, number, *counts)
                del heard[:]
                reason = _try_case(loader, case_of(number), path, counts, watch)
                if reason is None and heard:
                    reason = f"a warning: {heard[0].category.__name__}: {heard[0].message}"
                if reason is not None:
                    os.write(writer, f"{number}\t{' '.join(reason.split())[:2000]}\n".encode("utf-8", "replace"))
        _SLOTS.pack_into(shared, 0, span[1] - 1, *counts)
    except BaseException:  # noqa: BLE001 - nothing of the parent may run here
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _alarm(signum, frame):
    raise _TooLongError


def _try_case(loader, data, path, counts, watch):
    """Load one case and use what was loaded; a text where a promise is broken."""
    path.write_bytes(data)
    allowance = MEMORY_FACTOR * len(data) + MEMORY_EXTRA
    before = _start_memory(allowance)
    reason, watch.seen[:], watch.on = None, [], True
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, loader.seconds)
    try:
        loader.use(loader.load(path))
        counts[0] += 1
    except _TooLongError:
        reason = f"more than {loader.seconds:g} s"
    except BaseException as error:  # noqa: BLE001 - which errors are allowed is the question
        counts[1] += 1
        reason = _complaint(loader, error, path)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        watch.on = False
    counts[2] = max(counts[2], time.process_time() - start)
    grown = peak_memory() - before
    counts[3] = max(counts[3], grown)
    if grown > allowance:
        reason = f"{grown / 1e6:.0f} MB for a file of {len(data)} bytes"
    return reason or (f"events: {watch.seen[0]}" if watch.seen else None)


def _complaint(loader, error, path):
    """Why an error is not one of those documented; None where it is."""
    text = str(error)
    if not isinstance(error, loader.errors):
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {text[:300]} ({Path(where.filename).name}:{where.lineno})"
    if not any(name in text for name in (path.name, *loader.beside)):
        return f"an error that does not name the file: {type(error).__name__}: {text[:300]}"
    if len(text) > 1000 or "\n" in text:
        return f"an error of {len(text)} characters or several lines: {text[:300]}"
    return None


def _start_memory(allowance):
    """Forget the peak of memory so far and forbid what is far beyond the allowance; gives what is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 4 * allowance
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return start_memory()


def main(arguments=None):
    """Fuzz all loaders and print a table; exit code 1 where a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loaders", nargs="*", help=f"of {', '.join(LOADERS)}; all by default")
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("out/fuzz"), help="where offending files are put")
    options = parser.parse_args(arguments)
    _say(f"{'loader':<14}{'cases':>8}{'accepted':>10}{'refused':>9}{'slowest':>10}{'memory':>10}{'broken':>8}")
    total = broken = 0
    for name in options.loaders or LOADERS:
        loader = LOADERS[name]()
        tally = fuzz(loader, int(loader.cases * options.scale), options.seed)
        total, broken = total + tally.cases, broken + len(tally.failures)
        numbers = f"{tally.cases:>8}{tally.accepted:>10}{tally.refused:>9}"
        costs = f"{tally.slowest:>8.2f} s{tally.memory / 1e6:>7.0f} MB"
        _say(f"{name:<14}{numbers}{costs}{len(tally.failures):>8}")
        _report(name, loader, tally, options)
    _say(f"{total} cases, {broken} broken promises")
    return 1 if broken else 0


def _say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _report(name, loader, tally, options):
    """Print the first offenders and keep their bytes."""
    for number, reason, data in tally.failures[:20]:
        options.keep.mkdir(parents=True, exist_ok=True)
        path = options.keep / f"{name}-{options.seed}-{number}{loader.suffix}"
        path.write_bytes(data)
        _say(f"  {path}: {reason}")


if __name__ == "__main__":
    sys.exit(main())

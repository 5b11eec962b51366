"""What ends the program from outside: Ctrl-C and SIGTERM, after which nothing half-written is left."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT  # exit codes, as shells have them
TERMINATED = 128 + signal.SIGTERM

# Whoever presses Ctrl-C twice in so many seconds means it once: the second must not stop the cleaning up.
_ONE_WISH = 1.0


@contextmanager
def signals_clean_up() -> Iterator[None]:
    """Let SIGTERM unwind the program as Ctrl-C does, with an exit code of its own, until the block ends.

    Signals that the caller has turned off, as ``nohup`` does, or has other plans for are left to him.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not for other threads
        return
    latest = -math.inf

    def end(number: int, _: FrameType | None) -> None:
        nonlocal latest
        now, before = time.monotonic(), latest
        latest = now
        if now - before < _ONE_WISH:
            return
        if number == signal.SIGTERM:
            raise SystemExit(TERMINATED)
        raise KeyboardInterrupt

    usual = ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL))
    before = {number: handler for number, plain in usual if (handler := signal.getsignal(number)) == plain}
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

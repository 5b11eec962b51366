"""Connections to the scheduler of a cluster, and why there is none."""

import contextlib
from typing import Any, NoReturn

from manifoldrf._optional import require
from manifoldrf._validation import reject

_EXTRA = "dask"
_ANSWER = 10  # seconds until a scheduler must have answered
_PARTING = 5  # seconds for a client that did not reach it to end its thread
_CERTIFICATES = (
    "Schedulers with encryption have addresses that begin with tls://, and their certificates must be known here: "
    "`distributed.comm.tls` in the configuration of Dask, or a Client made with `security`."
)


def connected(client: Any) -> Any:
    """A client: the one given, or one of a cluster or an address."""
    distributed = require("distributed", _EXTRA)
    if isinstance(client, distributed.Client):
        if client.asynchronous:
            reject("client", "a client that is not asynchronous", repr(client))
        return client
    rule = "a Client or a cluster of dask.distributed, or the address of a scheduler, such as 'tcp://10.0.0.1:8786'"
    if not isinstance(client, str) and not hasattr(client, "scheduler_address"):
        reject("client", rule, repr(client), TypeError)
    try:
        return _made(distributed, client)
    except OSError as error:
        _explain(client, error)
    except RuntimeError as error:
        _explain_closed(client, error)
    except (ValueError, TypeError) as error:
        if isinstance(error, TypeError) and str(client).startswith("tls://"):
            raise ConnectionError(_no_connection(client, "no certificates are set")) from error
        reject("client", rule, f"{client!r}: {error}")


def _explain_closed(client: Any, error: RuntimeError) -> NoReturn:
    """A cluster that was closed; of an address nothing can be."""
    if isinstance(client, str):
        raise error
    reject("client", "a cluster that is not closed", f"{client!r}: {error}")


def _made(distributed: Any, address: Any) -> Any:
    """A client that is connected. One that is not would leave its thread, and some be the client that Dask asks."""
    client = distributed.Client.__new__(distributed.Client)
    try:
        client.__init__(address, timeout=_ANSWER)
    except BaseException:
        with contextlib.suppress(Exception):
            client.close(timeout=_PARTING)
        with contextlib.suppress(Exception):
            client._loop_runner.stop()  # a client that is closed by itself, in vain, leaves it
        raise
    return client


def _explain(client: Any, error: OSError) -> NoReturn:
    if type(error) in (OSError, TimeoutError):  # of time that has passed; others come at once
        text = f"No scheduler answers at {client!r} within {_ANSWER} seconds; is `dask scheduler` running there?"
        raise ConnectionError(text) from error
    reason: BaseException = error
    while reason.__cause__ is not None:
        reason = reason.__cause__
    raise ConnectionError(_no_connection(client, reason)) from error


def _no_connection(client: Any, reason: object) -> str:
    return f"No connection to the scheduler at {client!r}: {reason}. {_CERTIFICATES}"

"""Where a field is read: on the processor by compiled code, or on another device by torch.

Searches for neighbours stay on the processor. Networks and sparse products go to the device, some queries at a
time; results come back as arrays.
"""

from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._notices import filtered
from manifoldrf._validation import FloatArray, check_option, reject
from manifoldrf.fields.abstract_field import AbstractField

DEVICES = ("auto", "cpu", "cuda")
_ENTRIES_AT_ONCE = 2**22  # of a product, if it has no zeros: 64 MB with the columns, and as much again for the work


def pick_device(device: str) -> str:
    """The device asked for; "cuda" where there is none is an error."""
    import torch

    found = torch.cuda.is_available()
    if device == "cuda" and not found:
        reject("device", "'cpu' or 'auto' on a machine without CUDA", "'cuda'")
    return "cuda" if found and device != "cpu" else "cpu"


def check_device(device: Any) -> None:
    """Raise where a device is no word for one, or not there."""
    if check_option(device, "device", DEVICES) == "cuda":
        pick_device(device)


def read_field(
    field: AbstractField, queries: FloatArray, n_jobs: int, device: str, *, as_sparse: bool = False
) -> Any:
    """Values of a field, read on the device asked for.

    "auto" looks for another device for networks only: for other fields loading torch alone takes longer than most
    calls.
    """
    wanted = check_option(device, "device", DEVICES)
    looks = wanted == "cuda" or (wanted == "auto" and field.is_network)
    chosen = pick_device(wanted) if looks else "cpu"
    if chosen == "cpu":
        return field.sparse_values(queries, n_jobs) if as_sparse else field.values(queries, n_jobs)
    found = field.values_on(chosen, queries, n_jobs)
    return sparse.csr_array(found) if as_sparse and not sparse.issparse(found) else found


def sparse_product(left: Any, right: Any, device: str) -> Any:
    """Product of two CSR arrays on a device, as a CSR array with sorted columns; some rows at a time."""
    size = max(1, _ENTRIES_AT_ONCE // max(1, right.shape[1]))
    table = csr_tensor(right, device)
    parts = []
    for start in range(0, left.shape[0], size):
        found = csr_tensor(left[start : start + size], device) @ table
        names = ("values", "col_indices", "crow_indices")
        data, columns, ends = (getattr(found, name)().cpu().numpy() for name in names)
        parts.append(sparse.csr_array((data, columns, ends), shape=tuple(found.shape)))
        parts[-1].sort_indices()
    if not parts:
        return sparse.csr_array((0, right.shape[1]))
    return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")


def csr_tensor(rows: Any, device: Any, dtype: Any = None) -> Any:
    """A CSR array as a tensor on a device, of its own precision or another."""
    import torch

    with filtered("ignore", "Sparse", UserWarning):  # only products are taken, which all have had since 1.13
        return torch.sparse_csr_tensor(
            torch.as_tensor(rows.indptr.astype(np.int64), device=device),
            torch.as_tensor(rows.indices.astype(np.int64), device=device),
            torch.as_tensor(rows.data, device=device),
            size=rows.shape,
            dtype=dtype,
            device=device,
        )

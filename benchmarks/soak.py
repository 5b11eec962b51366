"""Run mixed work for half an hour: memory, files and threads must not grow, and results must keep their bits.

Each round fits, transforms, saves and loads models, computes signatures, interpolates, attends and predicts, all
from fixed seeds, until the time is over. A line is printed every minute. ``make soak``, or
``SOAK_MINUTES=2 make soak``.

A sample is taken after every round. The first sixth of the time is a warm-up, in which compiled code is loaded and
allocators grow. The level before is the mean of the samples in the second sixth; the level after is the mean of the
last third. Memory is flat if the level after is at most 5 % above the level before. Files and threads have not
grown if their maximum in the last third is not above that in the second sixth. Every operation must give the bits
of its first round.
"""

import argparse
import ctypes
import gc
import hashlib
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from manifoldrf import __version__

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs" / "results" / "soak.json"
MOST_GROWTH = 0.05
FEWEST = 3  # samples in a part that is to be judged
KINDS = ("memory", "descriptors", "threads")


@dataclass(frozen=True)
class Sample:
    """Resources of the process at one time."""

    seconds: float
    memory: float  # resident, in MB
    descriptors: int
    threads: int


@dataclass(frozen=True)
class Verdict:
    """Levels before and after; ``reasons`` is empty if nothing grew."""

    before: dict
    after: dict
    reasons: list = field(default_factory=list)

    @property
    def holds(self):
        """Whether nothing grew and no bit changed."""
        return not self.reasons


def take_sample(began):
    """Resources of this process now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208  - it opens no file for each name
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    return Sample(time.monotonic() - began, pages * os.sysconf("SC_PAGE_SIZE") / 2**20, descriptors, threads)


def judge(samples, changed=()):
    """The verdict on samples in the order of time, and on operations whose bits changed."""
    end = samples[-1].seconds if samples else 0.0
    early = [sample for sample in samples if end / 6 <= sample.seconds < end / 3]
    late = [sample for sample in samples if sample.seconds >= 2 * end / 3]
    reasons = [f"the bits of {name!r} changed" for name in changed]
    if min(len(early), len(late)) < FEWEST:
        reasons.append(f"too few samples to judge: {len(early)} in the second sixth, {len(late)} in the last third")
        return Verdict({}, {}, reasons)
    before, after = _levels(early), _levels(late)
    if after["memory"] > (1 + MOST_GROWTH) * before["memory"]:
        reasons.append(f"memory grew from {before['memory']:.1f} to {after['memory']:.1f} MB")
    for kind in KINDS[1:]:
        if after[kind] > before[kind]:
            reasons.append(f"{kind} grew from {before[kind]} to {after[kind]}")
    return Verdict(before, after, reasons)


def _levels(samples):
    """Mean memory, and the most descriptors and threads."""
    mean = float(np.mean([sample.memory for sample in samples]))
    return {"memory": mean} | {kind: max(getattr(sample, kind) for sample in samples) for kind in KINDS[1:]}


def digest(*arrays):
    """The bits of arrays, dense or CSR, as a short text."""
    hashed = hashlib.blake2b(digest_size=16)
    for array in arrays:
        parts = (array.data, array.indices, array.indptr) if hasattr(array, "indptr") else (array,)
        for part in parts:
            hashed.update(np.ascontiguousarray(part).tobytes())
    return hashed.hexdigest()


class Work:
    """The operations, each of which returns the bits of its result."""

    def __init__(self, folder):
        import manifoldrf
        from manifoldrf.applications import attention

        self._lib, self._attention = manifoldrf, attention
        self._folder = Path(folder)
        self._nodes = manifoldrf.Sphere().grid(600)
        self._new = manifoldrf.Sphere().sample(300, seed=1)
        self._graph = manifoldrf.knn_graph(self._nodes)
        self._model = self._fitted()

    def operations(self):
        """Names and functions, in the order of a round."""
        return {
            "fit": self._fit,
            "fit of a network": self._fit_network,
            "transform": lambda: digest(self._model.transform(self._new)),
            "transform in blocks, left half-way": self._blocks,
            "kernel": lambda: digest(self._model.kernel_matrix(self._new)),
            "save and load": self._save_and_load,
            "signatures": self._signatures,
            "interpolate": self._interpolate,
            "attention": self._attend,
            "predict": self._predict,
            "a refused fit": self._refused,
        }

    def _fitted(self, **settings):
        options = {"n_features": 256, "random_state": 0, "n_jobs": 2, **settings}
        return self._lib.ManifoldRandomFeatures(self._lib.HeatKernel(0.2), **options).fit(self._nodes)

    def _fit(self):
        model = self._fitted()
        return digest(model.anchors_, model.weights_, np.float64(float(model.error_)))

    def _fit_network(self):
        kernel = self._lib.DiffusionKernel(20.0)
        options = {"field": "mlp", "field_options": {"epochs": 1, "hidden": 8}, "n_starts": 60, "device": "cpu"}
        model = self._lib.ManifoldRandomFeatures(kernel, n_features=64, random_state=0, n_jobs=2, **options)
        return digest(model.fit(self._nodes).transform(self._new))

    def _blocks(self):
        blocks = self._model.transform_blocks(self._new, n_rows=50)
        return digest(next(blocks), next(blocks))

    def _save_and_load(self):
        path = self._model.save(self._folder / "model.safetensors")
        loaded = self._lib.load(path)
        return digest(loaded.transform(self._new), np.frombuffer(Path(path).read_bytes(), np.uint8))

    def _signatures(self):
        kernel, starts = self._lib.DiffusionKernel(5.0), np.arange(0, 600, 3)
        teachers = {"counts": {}, "walks": {"n_walks": 200}, "frontier": {}, "exact": {}}
        compute = self._lib.compute_signatures
        found = [
            compute(self._graph, kernel, starts, teacher=teacher, seed=0, n_jobs=2, **options).rows
            for teacher, options in teachers.items()
        ]
        return digest(*found)

    def _interpolate(self):
        values = np.where(np.arange(600) % 3 == 0, self._nodes[:, 2], np.nan)
        fill = self._lib.FieldInterpolator(method="features", random_state=0, n_jobs=2).fit(self._graph, values)
        return digest(fill.predict())

    def _attend(self):
        import torch

        features = torch.as_tensor(self._model.transform(self._new))
        values = torch.as_tensor(self._new).requires_grad_()
        result = self._attention.linear_attention(features, features, values)
        result.sum().backward()
        return digest(result.detach().numpy(), values.grad.numpy())

    def _predict(self):
        features = self._lib.ManifoldRandomFeatures(self._lib.HeatKernel(0.2), n_features=128, random_state=0)
        model = self._lib.ManifoldRidge(features, n_jobs=2).fit(self._nodes, self._nodes[:, 2])
        return digest(model.predict(self._new))

    def _refused(self):
        try:
            self._fitted(n_features=-1)
        except ValueError as error:
            return str(error)
        raise AssertionError("a negative number of features was taken")


def trim():
    """Return freed memory to the system, so that the allocator is not measured."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def run(minutes, say=print):
    """Samples, number of operations done, and the names of those whose bits changed."""
    samples, done, first, changed = [], Counter(), {}, set()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one epoch teaches little
        operations = Work(folder).operations()
        began, minute = time.monotonic(), 0
        while time.monotonic() - began < 60 * minutes:
            for name, operation in operations.items():
                if first.setdefault(name, found := operation()) != found:
                    changed.add(name)
                done[name] += 1
            trim()
            samples.append(take_sample(began))
            if samples[-1].seconds >= 60 * minute:
                minute = int(samples[-1].seconds // 60) + 1
                say(_line(samples[-1], done, changed))
    return samples, done, sorted(changed)


def _line(sample, done, changed):
    bits = f"{len(changed)} operations changed bits" if changed else "same bits"
    return (
        f"{sample.seconds / 60:5.1f} min   {sample.memory:7.1f} MB   {sample.descriptors:3d} files   "
        f"{sample.threads:3d} threads   {done.total():6d} operations   {bits}"
    )


def record(verdict, samples, done, minutes):
    """The run as a dict for the JSON file, with about one sample a minute."""
    step = max(1, len(samples) // max(1, round(minutes)))
    return {
        "version": __version__,
        "minutes": round(samples[-1].seconds / 60, 2),
        "rounds": len(samples),
        "operations": dict(done),
        "before": verdict.before,
        "after": verdict.after,
        "growth": verdict.after["memory"] / verdict.before["memory"] - 1 if verdict.after else None,
        "holds": verdict.holds,
        "reasons": verdict.reasons,
        "samples": [
            {name: round(value, 1) for name, value in asdict(sample).items()} for sample in samples[::step]
        ],
    }


def main():
    """Run, print the verdict, and say it by the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=RESULT, help="where what was seen is written")
    options = parser.parse_args()
    samples, done, changed = run(options.minutes, say=lambda line: print(line, flush=True))
    verdict = judge(samples, changed)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record(verdict, samples, done, options.minutes), indent=1) + "\n")
    for kind in KINDS if verdict.after else ():
        print(f"{kind}: {verdict.before[kind]:.4g} before, {verdict.after[kind]:.4g} after")
    print("flat" if verdict.holds else "NOT FLAT: " + "; ".join(verdict.reasons))
    sys.exit(int(not verdict.holds))


if __name__ == "__main__":
    main()

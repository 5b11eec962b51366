"""Records from before the two columns, read under today's names until ``make records`` has made them again.

Delete this file, and its use in page.py, with the first records that carry a digest of their code.
"""

import dataclasses
from collections.abc import Mapping

from reproduction.common import LIBRARY, RECIPE
from reproduction.interpolation import AUTO, BIHARMONIC, FEATURES, FULL, KERNEL, NEAREST
from reproduction.record import Record, chosen
from reproduction.surfaces import EXACT

_RANDOM = ("RFF", "ORF", "PRF", "PORF")
_MESHES = {f"{kind} {size}": f"{kind} {size}" for kind in _RANDOM for size in (256, 1024)} | {
    "MRF, paper's recipe": RECIPE,
    "exact features, uniform anchors": FEATURES,
    "library default (auto)": AUTO,
    FULL: FULL,
    "exact kernel, Gaussian weights": KERNEL,
    "exact kernel, Gaussian weights, tau = 20": KERNEL,
    "exact kernel, kNN graph": KERNEL,
    "biharmonic, unit weights": BIHARMONIC,
    "biharmonic, mesh edges, unit": BIHARMONIC,
    "nearest known in space": NEAREST,
}
_ATTENTION = ("geodesic Nystrom", "diffusion map", *_RANDOM, "exact RBF", "linear RBF", "exact heat")
# Experiment -> name of a method then -> its name now; all others are left out.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "surfaces": {RECIPE: RECIPE, "default, heat kernel, 1024 features": LIBRARY, "default, same kernel": EXACT},
    "ambient": {"MRF": LIBRARY, "Nystrom": "Nystrom"} | {name: name for name in _RANDOM},
    "attention": {"MRF": LIBRARY, "MRF learned": RECIPE} | {name: name for name in _ATTENTION},
    "brodatz": {"MRF": LIBRARY, "MRF learned": RECIPE} | {name: name for name in (*_RANDOM, "raw", "kPCA")},
    "normals": _MESHES,
    "velocity": _MESHES,
}


def upgraded(found: dict[str, Record]) -> dict[str, Record]:
    """Records by the experiment: those with files over those without, methods under today's names."""
    records = {}
    for name, record in found.items():
        base = name.removesuffix("_data")
        if "code" in record.environment:
            records[name] = record
        elif base in records and "code" in records[base].environment:
            continue
        elif base in _NAMES or base in ("gaussian_grid", "hyperbolic", "teachers"):
            before = records.get(base)
            tables = (before.tables if before else {}) | record.tables
            records[base] = _renamed(dataclasses.replace(record, name=base, tables=tables))
    graphs = found.get("surface_graphs")
    if graphs is not None and "fingerprints" not in records.get("surfaces", graphs).tables:
        records["surfaces"].tables["fingerprints"] = chosen(graphs.tables["fingerprints"], bandwidth="mean")
    return records


def _renamed(record: Record) -> Record:
    tables = dict(record.tables)
    if record.name == "ambient" and "curves" in tables:
        limits = [
            {
                "surface": row["surface"],
                "method": "Gaussian kernel itself",
                "features": 4000,
                "error": row["gaussian"],
            }
            for row in tables.pop("verdict")
        ]
        # With one anchor for every node the features were exact by construction.
        rows = [row for row in tables.pop("curves") if row["method"] != "MRF" or row["features"] < 4000]
        tables["best"] = rows + limits
    if record.name == "normals":  # of which the means are
        tables["cells"] = [row for row in tables["cells"] if row["vertices"] <= 20_000]
    if record.name == "attention":
        tables.setdefault("signals", [row | {"seed": 0} for row in tables["attention"]])
    names = _NAMES.get(record.name)
    for title, rows in tables.items() if names else ():
        known = {*names, *names.values(), "Gaussian kernel itself"} if names else set()
        kept = [row for row in rows if "method" not in row or row["method"] in known]
        tables[title] = [
            row | ({"method": names.get(row["method"], row["method"])} if names and "method" in row else {})
            for row in kept
        ]
    return dataclasses.replace(record, tables=tables)

"""Fill in the normals of a scan that are known at a fifth of its vertices, by every method.

The Stanford bunny of the pymeshfix wheel, 80 % of its vertex normals hidden. The table shows the mean cosine
between true and filled normals at the hidden vertices; the picture shows the bunny shaded by each.

Run: python examples/fill_a_scan.py [picture.png]
"""

import importlib.util
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from manifoldrf import TriangleMesh
from manifoldrf.applications.interpolation import FieldInterpolator

METHODS = {
    "kernel, tau = 20": FieldInterpolator("kernel", tau=20.0, weights="gaussian", normalize=True),
    "kernel": FieldInterpolator("kernel", normalize=True, random_state=0),
    "gp": FieldInterpolator("gp", tau=8.0, noise=1e-3, normalize=True),
    "harmonic": FieldInterpolator("harmonic", normalize=True),
    "biharmonic": FieldInterpolator("biharmonic", normalize=True),
}


def read_bunny():
    """The mesh inside the wheel."""
    (folder,) = importlib.util.find_spec("pymeshfix").submodule_search_locations
    return TriangleMesh.load(Path(folder) / "examples" / "StanfordBunny.ply")


def draw(mesh, fields, path):
    """One shaded bunny for each field of normals, seen along the z axis."""
    light = np.array([0.3, 0.5, 0.8])
    order = np.argsort(mesh.vertices[:, 2])  # the nearest points are drawn last
    figure, axes = plt.subplots(1, len(fields), figsize=(3.2 * len(fields), 3.4))
    for axis, (title, normals) in zip(axes, fields.items(), strict=True):
        shade = normals @ light
        axis.scatter(*mesh.vertices[order, :2].T, c=shade[order], s=1.5, cmap="gray", vmin=-0.4, vmax=1.0)
        axis.set_title(title)
        axis.set_aspect("equal")
        axis.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main():
    """Fill, compare, print and draw."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "out/fill_a_scan.png")
    mesh = read_bunny()
    normals = mesh.vertex_normals()
    hidden = np.random.default_rng(0).random(mesh.n_vertices) < 0.8
    values = np.where(hidden[:, None], np.nan, normals)
    fields = {"all known": normals, "known fifth": np.nan_to_num(values)}
    print(f"{mesh}, {hidden.sum()} normals hidden")
    print(f"{'method':<18}{'cosine':>8}{'tau':>7}{'seconds':>9}")
    for name, model in METHODS.items():
        start = time.perf_counter()
        found = model.fit(mesh, values).predict()
        cosine = (found * normals).sum(axis=1)[hidden].mean()
        tau = "-" if model.tau_ is None else f"{model.tau_:g}"
        print(f"{name:<18}{cosine:>8.3f}{tau:>7}{time.perf_counter() - start:>9.1f}")
        fields[name] = found
    draw(mesh, fields, path)
    print(f"picture: {path}")


if __name__ == "__main__":
    main()

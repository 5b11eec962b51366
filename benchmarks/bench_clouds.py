"""Whether a cloud of 66,600 texture descriptors in 15 dimensions becomes features in time and memory.

Each row of the table says what, the figure seen, the limit, and whether it holds. Every recipe runs in a process of
its own: *sparse*, one feature for each point of the cloud (four steps of a walk with local bandwidths), and
*default*, nothing said but the points.

1. fitting the cloud over the 300 s it may take: at most 1;
2. transforming 22,200 new points over 30 s: at most 1;
3. peak memory of the process over 4 GB: at most 1;
4. fitting over scikit-learn's search for 16 neighbours (``kneighbors_graph``) in the same process: at most 10 where
   nothing is to be fitted (sparse).

An argument selects the rows whose titles contain it. ``--quick`` takes a tenth of the points. Exits with code 1 if
a limit is missed, with ``--quick`` never. The machine is to do nothing else meanwhile.
"""

import json
import subprocess
import sys

from table import Row, run_cases

CLOUD, NEW = 66_600, 22_200
SCRIPT = """
import json, resource, sys, time, warnings
import numpy as np
from sklearn.neighbors import kneighbors_graph
from manifoldrf import GraphOptions, ManifoldRandomFeatures, PowerKernel
from reproduction.texture_data import generated_plates
from reproduction.texture_views import Protocol, draw_views

recipe, n_cloud, n_new = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
warnings.simplefilter("ignore")  # in so many dimensions fields are rough, and say so
plates = generated_plates(side=640)
seeds = range(-(-n_cloud // (600 * len(plates.names))))
views = draw_views(plates, Protocol(), seeds)
cloud = np.concatenate([view.unlabelled for view in views])[:n_cloud]
new = np.concatenate([view.test for view in views])[:n_new]
graph = GraphOptions(kind="knn", n_neighbors=16, bandwidth="local", density_correction=0.0)
sparse = ManifoldRandomFeatures(
    PowerKernel(4), n_features="all", graph=graph, field="step", sparse_output=True, random_state=0
)
features = sparse if recipe == "sparse" else ManifoldRandomFeatures(random_state=0)
features.fit(cloud[:2000])  # compiles
start = time.perf_counter()
features.fit(cloud)
fit = time.perf_counter() - start
start = time.perf_counter()
rows = features.transform(new)
transform = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
start = time.perf_counter()
kneighbors_graph(cloud, 16, n_jobs=-1)
search = time.perf_counter() - start
print(json.dumps([fit, transform, peak, search, rows.shape[1]]))
"""


def measured(recipe):
    """The case of one recipe."""

    def case(scale):
        sizes = [str(CLOUD // scale), str(NEW // scale)]
        command = [sys.executable, "-c", SCRIPT, recipe, *sizes]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        fit, transform, peak, search, m = json.loads(out)
        what = f"{recipe}, {sizes[0]} points, {m} features"
        rows = [
            Row(f"fit, {what} ({fit:.0f} s) / 300 s", fit / 300, "<=", 1.0),
            Row(f"transform of {sizes[1]} points, {what} ({transform:.1f} s) / 30 s", transform / 30, "<=", 1.0),
            Row(f"peak memory, {what} ({peak:.2f} GB) / 4 GB", peak / 4, "<=", 1.0),
        ]
        if recipe == "sparse":
            rows.append(
                Row(f"fit, {what} / scikit-learn's kneighbors_graph ({search:.1f} s)", fit / search, "<=", 10.0)
            )
        return rows

    return case


CASES = {"sparse": measured("sparse"), "default": measured("default")}

if __name__ == "__main__":
    run_cases("Time and memory of features of a large cloud.", CASES, full=1, quick=10)

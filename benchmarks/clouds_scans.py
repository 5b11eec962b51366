"""Scanned meshes with noise as clouds: the kernel and hidden fields against the clean mesh.

The vertices of a mesh get noise of 1 % of its size (the diagonal of its box) on each coordinate, and are used as a
cloud without faces. The kernel is a twentieth of the size wide, so the noise is a fifth of its width. The truth is
the heat kernel of the clean mesh, the exponential of its cotangent Laplacian (``robust_laplacian``). Two fields are
known at half of the points and predicted at the others by ridge regression on features: one consists of waves in
the coordinates of space, the other of low eigenfunctions of the mesh, which follow the surface.

Two more columns split the error of the kernel: rows of vertices that have the opposite side of the mesh, or a hole,
within 1.2 widths of the kernel (ears, limbs, folds), and all other rows.
"""

import importlib.util
import pathlib
import warnings

import numpy as np
from cloud_spaces import add_noise
from scipy.sparse.linalg import eigsh, splu
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeCV

from manifoldrf import HeatKernel, ManifoldRandomFeatures, TriangleMesh, relative_error
from manifoldrf._runtime import require

SCANS = ("stanford_bunny", "armadillo", "fertility")
NOISE, WIDTH = 0.01, 0.05  # of the size of the mesh
POLES = 14  # of the exponential of the Laplacian: off by 3.9^-14
MOST = {"full": 6000, "smoke": 1000}  # points of a cloud, drawn from the vertices
SCORED = 512
WAVES = 10.0  # of the first field: radians over the size
LOW = slice(5, 40)  # eigenfunctions of the second field
THIN = 1.2 * WIDTH  # distance of the opposite side or a hole
OPPOSITE = -0.3  # cosine of normals
ALPHAS = np.geomspace(1e-8, 1e2, 31)
PAIRS = 300  # eigenpairs of pydiffmap, and its neighbours, as in the comparison with other libraries
NEIGHBORS = 64


def load_scans(folder):
    """Meshes of a folder, or the bunny inside an installed package; sizes are scaled to 1."""
    if folder is None:
        print("No --data: the Stanford bunny of the package pymeshfix, instead of three scans.")
        place = importlib.util.find_spec("pymeshfix").submodule_search_locations[0]
        paths = {"bunny of pymeshfix": pathlib.Path(place) / "examples" / "StanfordBunny.ply"}
    else:
        places = (folder, folder / "meshes")
        paths = {name: next(p / f"{name}.ply" for p in places if (p / f"{name}.ply").exists()) for name in SCANS}
    meshes = {name: TriangleMesh.load(path) for name, path in paths.items()}
    return {name: scaled(mesh) for name, mesh in meshes.items()}


def scaled(mesh):
    """The mesh without unused vertices, scaled to a box of diagonal 1."""
    used, faces = np.unique(mesh.faces, return_inverse=True)
    vertices = mesh.vertices[used]
    size = np.linalg.norm(np.ptp(vertices, axis=0))
    return TriangleMesh(vertices / size, faces.reshape(-1, 3))


def mesh_heat_kernel(laplacian, mass, t, vertices):
    """Heat kernel exp(-t M^-1 L) M^-1 between vertices, by rational functions (modified Talbot contour)."""
    angles = np.pi * (2 * np.arange(POLES // 2) + 1) / POLES  # the other half are conjugates
    cut = 0.6407 * angles
    poles = POLES * (0.5017 * angles / np.tan(cut) - 0.6122 + 0.2645j * angles)
    slopes = POLES * (0.5017 / np.tan(cut) - 0.5017 * cut / np.sin(cut) ** 2 + 0.2645j)
    columns = np.zeros((mass.shape[0], len(vertices)), dtype=complex)
    columns[vertices, np.arange(len(vertices))] = 1.0
    total = np.zeros((len(vertices), len(vertices)))
    for pole, slope in zip(poles, slopes, strict=True):
        solved = splu((pole * mass + t * laplacian).tocsc()).solve(columns)[vertices]
        total += (2 * np.exp(pole) * slope / (1j * POLES) * solved).real
    return total


def fields_of(mesh, laplacian, mass):
    """Two fields of variance 1 at the vertices."""
    low = eigsh(laplacian, LOW.stop, mass, sigma=-1e-6, v0=np.ones(mesh.n_vertices))[1][:, LOW]
    x, y, z = WAVES * mesh.vertices.T
    waves = np.sin(x) + np.cos(y) + np.sin(z + 1)
    fields = np.column_stack([waves, low @ np.random.default_rng(0).standard_normal(low.shape[1])])
    return (fields - fields.mean(axis=0)) / fields.std(axis=0)


def are_thin(mesh, vertices):
    """Whether vertices have the opposite side of the mesh or a hole within a distance."""
    corners = mesh.vertices[mesh.faces]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    near = cKDTree(corners.mean(axis=1)).query_ball_point(mesh.vertices[vertices], THIN)
    rim = mesh.boundary_vertices
    thin = np.zeros(len(vertices), dtype=bool)
    if len(rim):
        thin = cKDTree(mesh.vertices[rim]).query(mesh.vertices[vertices])[0] < THIN
    units = across / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-300)
    for k, (vertex, faces) in enumerate(zip(vertices, near, strict=True)):
        gaps = np.linalg.norm(corners[faces].mean(axis=1) - mesh.vertices[vertex], axis=1)
        # A mean over the noise: single normals of a scan are rough.
        normal = np.exp(-((gaps / NOISE) ** 2) / 2) @ across[faces]
        thin[k] |= bool((units[faces] @ normal < OPPOSITE * np.linalg.norm(normal)).any())
    return thin


class Ours:
    """Default features of this library."""

    name = "manifoldrf"

    def __init__(self, points, t):
        self.model = ManifoldRandomFeatures(HeatKernel(t), normalize=False, random_state=0).fit(points)

    def transform(self, X):
        """Features."""
        return self.model.transform(X)

    def kernel(self, X):
        """Kernel of the features."""
        return self.model.kernel_matrix(X)


class Gaussian:
    """The RBF kernel of the same width; features are Nystroem's."""

    name = "RBF"

    def __init__(self, points, t, n_features=1000):
        self.t = t
        self.model = Nystroem(gamma=1 / (4 * t), n_components=min(n_features, len(points)), random_state=0).fit(
            points
        )

    def transform(self, X):
        """Features."""
        return self.model.transform(X)

    def kernel(self, X):
        """The kernel itself."""
        return np.exp(-cdist(X, X, "sqeuclidean") / (4 * self.t))


class DiffusionMapOfPeers:
    """Heat features from the eigenpairs of pydiffmap; its own choice of bandwidth."""

    name = "pydiffmap"

    def __init__(self, points, t):
        from pydiffmap.diffusion_map import DiffusionMap

        self.t, self.n = t, len(points)
        self.model = DiffusionMap.from_sklearn(alpha=1.0, k=NEIGHBORS, epsilon="bgh", n_evecs=PAIRS).fit(points)

    def transform(self, X):
        """Features."""
        # It returns P (psi / sqrt(-lambda)); divided by the eigenvalue of P, this is psi at new points.
        values = self.model.evals
        psi = self.model.transform(X) * np.sqrt(-values) / (1 + self.model.epsilon_fitted * values)
        return np.hstack([np.full((len(X), 1), self.n**-0.5), psi * np.exp(values * self.t / 2)])

    def kernel(self, X):
        """Kernel of the features; it has no absolute scale."""
        rows = self.transform(X)
        return rows @ rows.T


def methods():
    """Methods that can run here."""
    if importlib.util.find_spec("pydiffmap") is None:
        print("pydiffmap is not installed here; benchmarks/peers/requirements.txt has it (make bench-peers).")
        return [Ours, Gaussian]
    return [Ours, Gaussian, DiffusionMapOfPeers]


def measure_scan(name, mesh, most):
    """Rows of all methods on one mesh."""
    t, rng = WIDTH**2 / 2, np.random.default_rng([21, 1])
    laplacian, mass = require("robust_laplacian", "mesh").mesh_laplacian(mesh.vertices, mesh.faces)
    used = rng.choice(mesh.n_vertices, min(most, mesh.n_vertices), replace=False)
    clean = mesh.vertices[used]
    noisy = add_noise(clean, NOISE, rng)
    scored = rng.choice(len(used), SCORED, replace=False)
    known = rng.permutation(len(used)) < len(used) // 2
    exact = mesh_heat_kernel(laplacian, mass, t, used[scored])
    fields = fields_of(mesh, laplacian, mass)[used]
    thin = are_thin(mesh, used[scored])
    for method in methods():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = method(noisy, t)
            row = {"title": name, "method": method.name, "n": len(used)}
            for points, suffix in ((clean, ""), (noisy, "_noisy")):
                found = model.kernel(points[scored])
                row["error" + suffix] = relative_error(found, exact)
                row["aligned" + suffix] = relative_error(found, exact, alignment="least squares")
                if not suffix:
                    found = found * ((found * exact).sum() / (found * found).sum())
                    row["thin"] = float(thin.mean())
                    row["aligned_thin"], row["aligned_else"] = (
                        float(np.linalg.norm((found - exact)[some]) / np.linalg.norm(exact[some]))
                        for some in (thin, ~thin)
                    )
            row["rmse_space"], row["rmse_surface"] = hidden_errors(model.transform(noisy), fields, known)
            row["estimate"] = float(model.model.error_) if method is Ours else np.nan
        print(f"{name}, {method.name}: kernel off by {row['aligned']:.3f} after alignment", flush=True)
        yield row


def hidden_errors(rows, fields, known):
    """Root mean squared errors at hidden points, for fields of variance 1."""
    rows = rows / np.sqrt(np.square(rows).sum(axis=1).mean())
    found = RidgeCV(ALPHAS, alpha_per_target=True).fit(rows[known], fields[known]).predict(rows[~known])
    return [float(e) for e in np.sqrt(np.mean((found - fields[~known]) ** 2, axis=0))]


def measure_scans(folder, size, only=""):
    """Rows of all scans whose name contains a text."""
    meshes = load_scans(folder)
    return [row for name, mesh in meshes.items() if only in name for row in measure_scan(name, mesh, MOST[size])]


HEADER = {
    "title": "scan", "method": "method", "error": "kernel", "aligned": "aligned",
    "thin": "share of thin parts", "aligned_thin": "aligned, thin parts", "aligned_else": "aligned, elsewhere",
    "error_noisy": "kernel, noisy points", "aligned_noisy": "aligned, noisy points", "estimate": "`error_`",
    "rmse_space": "field of space", "rmse_surface": "field of the surface",
}  # fmt: skip


def _cell(row, name):
    value = row[name]
    if isinstance(value, str):
        return value
    absolute = row["method"] == Ours.name or not name.startswith("error")  # others have no absolute scale
    return f"{value:.3g}" if absolute and not np.isnan(value) else ""


def scans_table(rows):
    """The table of the documentation."""
    lines = [list(HEADER.values()), ["---"] * len(HEADER), *([_cell(row, name) for name in HEADER] for row in rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    said = (
        f"Up to {max(row['n'] for row in rows)} vertices of each scan. *kernel*: error at clean vertices, absolute "
        "scale included; *aligned*: after the best common factor. *thin parts*: rows of vertices with the opposite "
        "side or a hole within 1.2 widths of the kernel. *field*: root mean squared error at hidden points, for "
        "fields of variance 1."
    )
    return f"{said}\n\n{table}"


def print_scans(rows):
    """The table on the screen."""
    print(scans_table(rows))

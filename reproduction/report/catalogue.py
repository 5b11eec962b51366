"""The list of all experiments: claim, module, tables and pictures. A new experiment needs one entry."""

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manifoldrf._validation import check_option
from reproduction.record import Record
from reproduction.report.style import FORMATS

Draw = Callable[[Record, Path], Path | None]  # None if a record has nothing to draw
Progress = Callable[[str, int, int], None]

WITH_DATA = "_data"  # ends the name of a record that was made from user files


@dataclass(frozen=True)
class Entry:
    """One experiment and its presentation. Its code is imported on first use.

    Attributes
    ----------
    name : str
        What users call it, and the name of its record.
    module : str
        Its file in ``reproduction``, with ``Config``, ``SIZES`` and ``run``.
    claim : str
        What it shows, in one line. Measured numbers belong in records, not here.
    about : str
        What it does, in two or three sentences.
    columns : str
        What its tables mean.
    figures : mapping of str to str
        Stem of a picture's file name, which begins with the name of the experiment -> "module:function" in
        ``reproduction.report``.
    hidden : mapping of str to set of str
        Table -> columns that would not fit a terminal.
    drawn : set of str
        Tables that are too long to be printed; pictures show them.
    reads : str
        What a folder of data may hold, for experiments that can read one; empty for all others.
    in_parts : bool
        Whether ``run`` takes a folder in which it keeps its finished parts.

    Examples
    --------
    >>> CATALOGUE["teachers"].figures
    {'teachers': 'figures:draw_teachers'}
    """

    name: str
    module: str
    claim: str
    about: str
    columns: str
    figures: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, frozenset[str]] = field(default_factory=dict)
    drawn: frozenset[str] = frozenset()
    reads: str = ""
    in_parts: bool = False

    def experiment(self) -> Any:
        """The module of the experiment."""
        return importlib.import_module(f"reproduction.{self.module}")

    def sizes(self) -> Mapping[str, Any]:
        """Name of a size -> settings of the experiment."""
        sizes: Mapping[str, Any] = self.experiment().SIZES
        return sizes

    @property
    def records(self) -> tuple[str, ...]:
        """Names of its records: with built-in data and, if it reads files, with those of the user."""
        return (self.name, f"{self.name}{WITH_DATA}") if self.reads else (self.name,)

    def run(self, config: Any, progress: Progress, data: Path | None = None, parts: Path | None = None) -> Record:
        """Run the experiment; with a folder of data, the name of the record ends in "_data"."""
        kept = {"parts": parts} if self.in_parts else {}
        if data is None or not self.reads:
            record: Record = self.experiment().run(config, progress, **kept)
            return record
        record = self.experiment().run(config, progress, data, **kept)
        return dataclasses.replace(record, name=f"{record.name}{WITH_DATA}")

    def pictures(self, record: str) -> dict[str, str]:
        """Stems of the file names of a record's pictures, named after it -> those of :attr:`figures`."""
        return {record + stem.removeprefix(self.name): stem for stem in self.figures}

    def draw(self, record: Record, folder: Path, format: str = "png") -> list[Path]:
        """Draw all pictures of a record into a folder, as "png", "pdf" or "svg", and return their paths."""
        suffix = check_option(format, "format", FORMATS)
        names = self.pictures(record.name)
        drawn = [self.draw_one(record, name, folder / f"{name}.{suffix}") for name in names]
        return [path for path in drawn if path is not None]

    def draw_one(self, record: Record, picture: str, path: Path) -> Path | None:
        """Draw one picture of a record, by its name in :meth:`pictures`; None if there is nothing to draw."""
        return self._drawer(self.pictures(record.name)[picture])(record, path)

    def caption(self, record: str, picture: str) -> str:
        """Caption of a picture: the first sentence of the docstring of its function, or its name."""
        about = inspect.getdoc(self._drawer(self.pictures(record)[picture])) or picture.replace("_", " ")
        return " ".join(about.partition("\n\n")[0].split())

    def _drawer(self, stem: str) -> Draw:
        """The function that draws one picture."""
        module, _, function = self.figures[stem].partition(":")
        found: Draw = getattr(importlib.import_module(f"reproduction.report.{module}"), function)
        return found


ENTRIES = (
    Entry(
        name="surfaces",
        module="surfaces",
        claim="The kernel at new points: the paper's recipe and the library's default on four surfaces.",
        about=(
            "The paper's first table: features are fitted on the sphere, the ellipsoid, the Möbius strip and the "
            "torus, by the paper's recipe (Algorithm 1, its network) and by the library's default, which needs no "
            "training. Errors are measured at the nodes, as in the paper, and between points that no graph "
            "contains; times are compared with a dense eigendecomposition in the same run."
        ),
        columns=(
            "r2, re, mse: errors of signatures, against walks at held-out starts as in the paper (the epoch is "
            "chosen by the loss at the same starts, and relative errors are clamped at 0.1, which the paper "
            "states for its loss only), or against exact ones at nodes that no field was fitted to (column "
            "against; the table signatures has both for our network). The other errors are relative Frobenius "
            "errors of the kernel after alignment. kernel: as in the paper, at all nodes, on the sphere against "
            "the analytic kernel at the time t = 0.0245 that the paper's RMSE and relative error imply (its "
            "text says 0.25), elsewhere against the kernel of the graph; nodes: at all nodes, against the "
            "kernel of the graph; held out: the same at nodes that no field was fitted to; own kernel: at the "
            "latter nodes, against the kernel of the surface at the calibrated time; new points: against the "
            "kernel of the surface between points that no graph contains. plain: without alignment. kernel ms: "
            "time of a kernel between new points; speed up: time of the faster eigendecomposition of the graph, "
            "with the kernel of all nodes formed from it, over that time. recipe: all trainings in batches of "
            "1024, our choice as is early stopping, with the epochs that were run, the epoch whose weights are "
            "used, and why training stopped (patience: 100 epochs without a lower loss at held-out starts). "
            "About 70 % of the time of a training is in matrix products (torch.profiler, one thread). targets: "
            "the limit, the measured value, and whether the limit is met."
        ),
        figures={
            "surfaces_fields": "surfaces:draw_fields",
            "surfaces_kernels": "surfaces:draw_kernels",
            "surfaces_diagnostics": "surfaces:draw_diagnostics",
            "surfaces_training": "surfaces:draw_training",
        },
        hidden={
            "surfaces": frozenset(
                {"re", "mse", "own_kernel", "nodes_plain", "held_out_plain", "new_points_plain", "features"}
            ),
            "recipe": frozenset({"nodes_plain", "held_out_plain", "pairs", "part_s", "commit"}),
        },
        in_parts=True,
    ),
    Entry(
        name="ambient",
        module="ambient",
        claim="A few hundred features of the surface against thousands of tuned features of the ambient space.",
        about=(
            "Features of the Gaussian kernel of the ambient space (random Fourier, orthogonal, positive and "
            "more), each with its best bandwidth, approximate the heat kernel of the four surfaces, on graphs "
            "whose kernels have the norms of the paper's. They are compared with features of the surface, from a "
            "few to one for every node. Nystrom's features, GERF and positive features with scaled rows are not "
            "in the paper and were added."
        ),
        columns=(
            "best: every method at its best sigma, chosen at 1000 nodes; rmse and mae in units of 1e-4, error: "
            "relative Frobenius after alignment, paper: the same in the paper. Kernels are compared at all "
            "nodes, as in the paper; there, the only error of features of the surface comes from too few "
            "anchors. For new points see the experiment surfaces. scaled: every row over its largest entry. "
            "verdict: few features of the surface (mrf) against the best random features of the ambient space "
            "(ambient); nystrom: the same number of landmarks; gaussian: the best Gaussian kernel itself, which "
            "no number of ambient features can beat."
        ),
        figures={"ambient": "ambient:draw_ambient"},
        hidden={
            "best": frozenset(
                {"rmse", "mae", "mean_re", "median_re"}
                | {"paper_r2", "paper_rmse", "paper_mae", "paper_mean_re", "paper_median_re"}
            ),
            "verdict": frozenset({"mrf_features", "ambient_features", "paper_method"}),
        },
        drawn=frozenset({"curves"}),
    ),
    Entry(
        name="gaussian_grid",
        module="gaussian_grid",
        claim="Signatures on finer and finer grids converge to Gaussian features, in 2 to 32 dimensions.",
        about=(
            "The paper's check of its theory: on periodic grids the signature of a node converges to the feature "
            "of the Gaussian kernel, and inner products converge to the kernel itself. Exact signatures show the "
            "error of the grid alone; random walks add noise. The limits are periodised, like the grid."
        ),
        columns=(
            "summary: relative mean squared error of psi and of the kernel on the coarsest and the finest grid (n "
            "nodes per axis, d dimensions), exact, by walks and by counts; noise: the error that walks predict; "
            "plain: against limits that are not periodised. constants: the factors of both limits, and how well "
            "they fit."
        ),
        figures={
            "gaussian_grid_errors": "grids:draw_grid_errors",
            "gaussian_grid_convergence": "grids:draw_grid_convergence",
            "gaussian_grid_signatures": "grids:draw_grid_signatures",
            "gaussian_grid_saddle": "grids:draw_saddle",
        },
        hidden={"constants": frozenset({"log10_for_psi", "log10_for_kernel"})},
        drawn=frozenset({"errors"}),
    ),
    Entry(
        name="normals",
        module="normals",
        claim="Vertex normals from a fifth of them: the paper's kernel, ambient features, sparse solves.",
        about=(
            "Four of five normals of a mesh are hidden and filled in. The paper's setting (tau = 20, ambient "
            "bandwidths chosen on the hidden normals) is compared with parameters chosen on the known normals. "
            "Large meshes have a shorter list of methods and are not part of the means. Times are measured on one "
            "shape with 1500 to 150,000 vertices."
        ),
        columns=(
            "normals: mean cosine over meshes of at most 20,000 vertices; as paper: tau = 20, or the bandwidth "
            "that is best on the hidden normals; median: of the same cosines; tuned: parameters chosen by "
            "cross-validation on known normals, or no parameters; paper: the paper's value on other meshes; for "
            "exact features, the value of its learned network. learned: steps from the exact kernel to the "
            "trained network, with the number of epochs. exponents: of power laws fitted to times, in CPU "
            "seconds if the settings say so; the paper's are for interpolation. largest: times at the size of "
            "the paper's largest mesh. The learned recipe is run on fewer meshes than the others: compare its "
            "row with the table learned. It is timed with two of its 1000 epochs, the others extrapolated, and "
            "with pairs of 1000 instead of 5000 nodes, a smaller share of all pairs on larger meshes: its "
            "preparation is several times too short and not compared (full trainings: table learned of "
            "normals_data), and its exponent of preparation is negative. The full kernel is extrapolated above "
            "12,000 vertices, where it took six minutes."
        ),
        figures={
            "normals_methods": "interpolation:draw_methods",
            "normals_cosines": "interpolation:draw_cosines",
            "normals_times": "interpolation:draw_times",
        },
        hidden={
            "meshes": frozenset({"farthest", "average", "harmonic", "auto"}),
            "learned": frozenset({"walks", "dense"}),
        },
        drawn=frozenset({"cells", "scaling"}),
        reads=(
            "a folder of mesh files (ply, obj, stl, off, glb), or one with them in meshes or raw_meshes: the "
            "paper's by Thingi10K id, such as 37384.stl, or any others"
        ),
        in_parts=True,
    ),
    Entry(
        name="velocity",
        module="velocity",
        claim="Hidden velocities of cloth: the graph matters more than the kernel, and tau = 20 smooths too much.",
        about=(
            "One velocity in twenty is hidden in six frames of moving meshes and filled in by K(mU)/(Km), by "
            "features, by sparse solves and by ambient features. Nearest neighbours in space join sheets of folded "
            "cloth; mesh edges do not. Times are measured on denser and denser nodes of the first sequence."
        ),
        columns=(
            "dense: mean cosine over all sizes of the first sequence, averaged like the paper's; for its "
            "learned recipe, over the two sizes it was run at. as paper: mean over sequences with tau = 20, or "
            "for ambient features with the bandwidth that is best on the hidden nodes; tuned: parameters chosen "
            "on known nodes, or none; error: relative l2. sheets: share of edges between nearest neighbours "
            "that are more than four times as long along the mesh. exponents: of power laws fitted to times, in "
            "CPU seconds if the settings say so; the paper's are for interpolation. Compare the learned recipe "
            "with the table learned: it is run on fewer sequences and sizes than the others. The full kernel is "
            "timed at two sizes."
        ),
        figures={
            "velocity_methods": "interpolation:draw_methods",
            "velocity_dense": "interpolation:draw_dense_cosines",
            "velocity_times": "interpolation:draw_times",
        },
        hidden={
            "sequences": frozenset(
                {"uniform_256", "farthest_256", "sparse", "average", "biharmonic_knn", "biharmonic_unit"}
            ),
            "learned": frozenset({"error", "dense_error", "validation_re"}),
        },
        drawn=frozenset({"cells", "scaling"}),
        reads=(
            "a folder, or one with a folder named sequences, of .npz sequences (pos (T, V, 3), faces, optionally "
            "dt); reproduction.convert_tfrecords makes them from the .tfrecord files of flag_simple"
        ),
        in_parts=True,
    ),
    Entry(
        name="attention",
        module="attention",
        claim="Masked tokens filled in by linear attention: geometry helps where sheets nearly touch.",
        about=(
            "Values of most tokens on a surface are masked and filled in by attention with 64 features of many "
            "kinds, exact kernels and sparse solves, each tuned on the visible tokens of that signal. The paper's "
            "Möbius strip is one of four surfaces; on the others, sheets pass each other closely. The paper "
            "specifies neither its protocol nor its unit, so only the order of its methods can be compared."
        ),
        columns=(
            "attention: median, mean and geometric mean (mse) of squared errors over all signals, which have "
            "variance 1; ratio: geometric mean of the error over that of MRF on the same signal; l2: median "
            "relative error; published: means over the paper's numbers of sources, in its unknown unit. MRF and "
            "linear RBF have anchors in the middle of their cells, weighted by the visible tokens around them; "
            "cells: weighted by all tokens of the cell; learned (if the settings have n_learned): the paper's "
            "network with tau = 20, on the first seeds. verdict: errors of other methods over errors of MRF (above "
            "1: MRF is better), and whether geometry helps."
        ),
        figures={"attention": "attention:draw_attention", "attention_tokens": "attention:draw_tokens"},
        hidden={
            "attention": frozenset({"group", "parameter", "published_l2"}),
            "verdict": frozenset({"positive", "over_positive"}),
        },
        drawn=frozenset({"sources"}),
        in_parts=True,
    ),
    Entry(
        name="attention_order",
        module="attention_order",
        claim="What brings about the paper's order of attention methods on the Möbius strip: nothing tried does.",
        about=(
            "The paper states neither the size of its strip nor tokens, visible share, widths or noise. Each is "
            "varied here, with the paper's ten methods, to see when features of the surface come first and the "
            "exact heat kernel last, as they do in the paper. Its relative l2 errors are 2 to 8; in plain units "
            "all its methods would be worse than predicting zero."
        ),
        columns=(
            "order: ranks by the geometric mean of the squared errors (1 is the best of 10); mrf uniform: the rank "
            "of features with uniform anchors in place of MRF; correlation: Spearman's, with the paper's order of "
            "its mean squared errors. verdict: number of variations with MRF (of either kind) first, with the "
            "exact heat kernel last, and with both."
        ),
    ),
    Entry(
        name="brodatz",
        module="brodatz",
        claim="Rotated textures from six labelled windows: features of the cloud of descriptors against others.",
        about=(
            "Windows of textures become 15-dimensional descriptors. Six of each texture have a label, at 0 and 90 "
            "degrees; groups of windows at other angles are recognised by the nearest labelled windows. Settings "
            "and rules of all methods are chosen in the same way, on labelled windows only. The descriptor was "
            "chosen by raw accuracy on tiles of photographs (table descriptors); the other window, 32, by the "
            "paper's raw accuracy on test windows of other seeds. Without files, tiles of photographs replace the "
            "Brodatz album."
        ),
        columns=(
            "Groups recognised, percent, mean over seeds. coordinates: as they are, or each divided by its "
            "deviation over the unlabelled windows. euclidean, cosine, inner product: decision by the smallest "
            "distance of features, the largest cosine, which is the smallest distance of features of unit "
            "length, and the largest inner product, which is not a distance; balanced: by the inner product "
            "with labelled windows weighted to share the unlabelled ones equally, which is not in the paper. "
            "accuracy: by the one of the first three that recognises most labelled windows of the other angle; "
            "lead: its difference to raw descriptors with the same coordinates on the same seeds; single: "
            "accuracy of single windows. k3: with three voting neighbours, ties to the nearest; first3: ties to "
            "the smallest label. Windows of all seeds come from the same plates. Beside the paper's numbers "
            "stands accuracy, whose rule is mostly the inner product; by Euclidean distance, MRF do not lead "
            "over raw descriptors, while MRF learned do (see their rows). MRF learned: the paper's recipe at a "
            "reduced size (500 starts, 2000 walks, 20 epochs) on three seeds. Positive features are far better "
            "here than in the paper; why is not known."
        ),
        figures={"brodatz": "brodatz:draw_brodatz"},
        hidden={"brodatz": frozenset({"seeds", "single", "spread", "lead_error"})},
        drawn=frozenset({"by_k", "seeds"}),
        reads=(
            "a folder of Brodatz plates D1.png (or .gif), D2.png, ..., or one with them in brodatz or "
            "textures/brodatz"
        ),
        in_parts=True,
    ),
    Entry(
        name="hyperbolic",
        module="hyperbolic",
        claim="The heat kernel of hyperbolic space on a fixed ball, from larger and larger balls.",
        about=(
            "The paper's exhaustion of H^3: features are fitted on balls of radius 2 to 5 and compared with the "
            "analytic kernel inside radius 1.5. Nodes are evenly spread inside and become sparser towards the rim; "
            "steps are calibrated along the curved metric. Sixteen recipes, the causes of a wrong scale and the "
            "paper's recipe are compared."
        ),
        columns=(
            "error: relative Frobenius error after least-squares alignment, at nodes, mean over seeds; unaligned: "
            "without alignment; scale: the factor of the alignment; new points: at points that are not nodes; "
            "rmse: in 1e-3; fixed nodes, iid: other layouts; walks: the paper's recipe at reduced size. "
            "calibration: time of a step over the correct time, weight of the inner ball over its volume. "
            "exhaustion: the estimate is the sum of resolution and truncation."
        ),
        figures={
            "hyperbolic_radii": "hyperbolic:draw_radii",
            "hyperbolic_estimate": "hyperbolic:draw_estimate",
            "hyperbolic_slice": "hyperbolic:draw_slice",
        },
        hidden={
            "radii": frozenset(
                {"spread", "new_unaligned", "walks_new_points", "walks_rmse", "walks_seconds", "inside", "seconds"}
            ),
            "recipes": frozenset({"new_unaligned", "inside", "nodes", "rmse", "seconds"}),
        },
    ),
    Entry(
        name="few_labels",
        module="few_labels",
        claim="Few labels on real clouds: features of the manifold against seven others, and where they lose.",
        about=(
            "Digits, covariances of photographs, and two scans with noise and outliers are classified from 1 to 10 "
            "labels for each class. Every method has 24 settings, chosen by cross-validation on the labels alone; "
            "with one label the defaults are used. A scan is then damaged until all methods fail."
        ),
        columns=(
            "losses: accuracy of our better method and of the best other method at held-out points, the lead, and "
            "its standard error over draws of labels; even: the lead is within two standard errors. clouds: number "
            "of points in the fit, of held-out points, of classes, and of settings tried. accuracy and sweep (in "
            "the pictures and the record): seen and new: accuracies at points of the fit without a label and at "
            "held-out points; hindsight: the single setting that is best at new points; noise: relative to the "
            "spacing of the points; outliers: per point."
        ),
        figures={"few_labels": "few_labels:draw_accuracy", "few_labels_damage": "few_labels:draw_damage"},
        hidden={"accuracy": frozenset({"seen_spread"}), "sweep": frozenset({"seen_spread"})},
        drawn=frozenset({"accuracy", "sweep"}),
    ),
    Entry(
        name="surface_graphs",
        module="surface_graphs",
        claim="The graphs of the features: how close their heat kernel is to that of the surface.",
        about=(
            "Heat graphs of the four surfaces are compared with the heat kernel of the surface, which is analytic "
            "on the sphere and computed from a finer graph elsewhere. On the sphere the paper's knn graph is also "
            "compared, with more and more nodes. The paper states no bandwidth for its graphs of surfaces. Twice "
            "the squared mean distance to a neighbour gives the norms of its kernels, on the strip with 12 "
            "neighbours, where its text says 24."
        ),
        columns=(
            "surfaces: error of the heat kernel at new points, with known node weights and from the points only "
            "(the reference is exact on the sphere, a finer graph elsewhere); t of tau: heat time of the paper's "
            "20 steps. convergence: error at the nodes of the sphere. fingerprints: norm of the kernel matrix over "
            "the number of nodes, times 10,000, for two bandwidths: the median squared distance to a neighbour, "
            "and twice the squared mean distance. The paper's is RMSE over relative error in its table of ambient "
            "features. On the sphere it is that of the analytic kernel at t = 0.0245; graph to analytic: how far "
            "the exact kernel of the graph is from it, where the paper's recipe is 0.067 away. walks: error of "
            "10,000 walks from each of 50 starts. sphere: the same distance for other bandwidths of its graph."
        ),
        figures={
            "surface_graphs": "figures:draw_surface_graphs",
            "surface_graphs_convergence": "figures:draw_graph_convergence",
        },
        hidden={"surfaces": frozenset({"nodes", "neighbours", "components", "reference"})},
    ),
    Entry(
        name="teachers",
        module="teachers",
        claim="Counted walkers are many times more accurate than the paper's walks, and exact rows cost less.",
        about=(
            "Every way to compute signatures, on the paper's graphs and at equal numbers of steps: the paper's "
            "Algorithm 1 and its variants, counted walkers, and the exact teachers."
        ),
        columns=(
            "teachers: relative error of signature rows for exp(-20 L), the error that walks predict for "
            "themselves, and milliseconds per start on one core. Steps of the exact teachers are products with "
            "entries of W. The picture also shows smaller budgets of steps."
        ),
        figures={"teachers": "figures:draw_teachers"},
        hidden={"teachers": frozenset({"budget"})},
        drawn=frozenset({"budgets"}),
    ),
)
CATALOGUE = {entry.name: entry for entry in ENTRIES}

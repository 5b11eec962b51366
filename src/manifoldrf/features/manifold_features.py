"""Features of points of a curved space, as a scikit-learn transformer."""

import copy
import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from manifoldrf._codec import save_state
from manifoldrf._files import html_table
from manifoldrf._random import SeedLike
from manifoldrf._runtime import one_blas_thread, quiet_underflow, without_warnings
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    as_floats,
    check_columns,
    check_integer,
    check_jobs,
    check_option,
    check_vector,
    reject,
)
from manifoldrf.features.errors import ErrorEstimate, graph_error
from manifoldrf.features.feature_map import FeatureMap, product
from manifoldrf.features.fitting import (
    FeatureWarning,
    FieldChoice,
    check_function,
    choose_anchors,
    choose_field,
    choose_weights,
    feature_weights,
    fit_mixing,
    more_anchors,
    note_flat,
    settle_options,
    warn_of_graph,
)
from manifoldrf.features.options import FitOptions, FrozenParamsMixin, check_space, estimator_points, fit_options
from manifoldrf.features.problem import FEW_DIMS, make_problem, warn_of_far
from manifoldrf.features.state import restore, shortened, state_of, summary_rows, text_table
from manifoldrf.features.times import PreparedPoints, TimeRange, check_in_range, check_times
from manifoldrf.features.unstructured import fit_unstructured, is_unstructured
from manifoldrf.fields.data import Compute
from manifoldrf.fields.training import TrainingInfo
from manifoldrf.geometry.builders import knn_graph
from manifoldrf.geometry.graphs import Graph, GraphWarning, as_space
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.graph_kernels import DiffusionKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel
from manifoldrf.signatures.teachers import compute_signatures

__all__ = ["ManifoldRandomFeatures", "heat_signature"]

KIND = "ManifoldRandomFeatures"  # of a file
_SIDES = ("left", "right")
_UNKNOWN = ErrorEstimate(np.nan, np.nan, np.nan, None, np.nan)  # shown where nothing may be computed


class ManifoldRandomFeatures(FrozenParamsMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Nonnegative feature vectors of points of a curved space, whose inner products are a kernel of the space.

    phi(x) . phi(y) ~ K(x, y), with phi(z)_l = sqrt(s w_l) g(z, omega_l). The field g is learnt from signatures of a
    graph that discretises the space, and evaluated at anchors omega_l. phi is defined for every z, nonnegative and
    bounded. The factor s makes K(x, x) one on average; without ``normalize`` it is one.

    Parameters
    ----------
    kernel : AbstractKernel, callable or None, default=None
        None: the heat kernel at a time estimated from the points. In the manifold clock (``HeatKernel``) features
        approximate the kernel of the space per unit of volume; in the graph clock (``DiffusionKernel``, ...) the
        kernel of the graph, as if a point were a node. A function F(X, Y) is approximated by a series of heat steps
        or, if it is not symmetric, by features with two sides. In a cloud of many dimensions without structure,
        features of a heat kernel approximate the Gaussian kernel exp(-|x - y|^2 / 4t); the summary says so.
    normalize : bool, default=True
        Whether features are scaled such that K(x, x) = 1 on average, as learners expect; ``scale_`` is the factor
        of the kernel. For a function without symmetry, whose F(x, x) may vanish, the largest |F(x, y)| over all y
        is 1 on average. Otherwise the scale is absolute: a heat kernel is then about (4 pi t)^(-dim / 2) high, in
        the unit of the coordinates. The kernel itself is the same, with one exception: for a short heat kernel on a
        cloud of four or five dimensions without structure, normalised features approximate the Gaussian kernel,
        absolute ones that of the heat graph.
    scale : float, default=1.0
        Length of the chosen kernel (``kernel=None``), relative to the usual one: with 2 the kernel is twice as
        wide, so its heat time is four times as long. A given kernel has its own time, ``kernel__t``.
    times : pair of float, optional
        Shortest and longest heat time. Features are then fitted for all times between, and :meth:`at` returns those
        of any time, or of a Matern kernel, without another fit. ``kernel`` is the one in use after the fit: a heat
        kernel with a time in the range (by default the geometric mean), or a Matern kernel. Only for spaces that
        get a heat graph.
    n_features : int or {"auto", "all"}, default="auto"
        "auto": as many as the width of the kernel requires. "all": every node of the graph is an anchor.
    field : {"auto", "step", "interpolated", "local", "mlp"} or callable, default="auto"
        How signatures are extended to new points. "auto" takes the field that is best at held-out nodes, and never
        trains the network. A function of :class:`FieldData` that returns an :class:`AbstractField` is your own
        field.
    anchors : {"farthest", "medoid", "iid", "all"}, default="farthest"
        Nodes at which features are read. "medoid" moves farthest points to the middle of their cells, which reduces
        the error on spaces with a boundary and on uneven clouds.
    weights : {"auto", "nnls", "unity", "voronoi", "uniform"}, default="auto"
        Quadrature weights of the anchors. "auto" takes those that are best at held-out nodes. "uniform" are the
        paper's: the plain sum over all nodes, or its unbiased estimate from i.i.d. anchors; "auto" uses them if all
        nodes are anchors or anchors are i.i.d. "nnls" is kept only if it is better than "voronoi" and "unity".
    teacher : str or callable, default="auto"
        Method that computes signatures, as in :func:`compute_signatures`.
    teacher_options : dict, optional
        Options of the teacher, such as ``{"n_walks": 10_000}``.
    field_options : dict, optional
        Options of "local" and "mlp", such as ``{"epochs": 20, "checkpoint": "run.safetensors"}``.
    graph : GraphOptions, callable, Graph or None, default=None
        How the graph is built; a callable takes the points (or the mesh) and returns a :class:`Graph`.
    n_starts : int, optional
        Number of random nodes whose signatures a field is fitted to; all nodes by default, 1000 for the network.
    anchor_density : callable or array-like of shape (n_nodes,), optional
        Density on the nodes that ``anchors="iid"`` draws from, as positive numbers or as a function of the
        positions of the nodes; uniform by default.
    loss : {"relative", "l2"}, optional
        Loss of the network; its own default if None.
    random_state : None, int, Generator or RandomState, default=None
    sparse_output : bool, default=False
        Whether :meth:`transform` returns CSR arrays.
    n_jobs : int, default=-1
        Number of threads, -1 for all cores; it does not change the results.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where the network is trained and fields are evaluated. "auto" uses a CUDA device, if there is one, for
        networks only; "cuda" also for the products of the fields "step" and "interpolated". Graphs, signatures,
        neighbour searches and the field "local" stay on the CPU. Tested on the CPU only.
    verbose : bool or callable, default=False
        Whether progress is shown; a callable takes (what, done, total), where ``what`` names the current stage.

    Attributes
    ----------
    graph_ : Graph
    kernel_ : AbstractKernel
        As given or chosen. For a function: its series or, if it is not symmetric, the heat kernel whose features
        are mixed.
    field_ : str
        The field in use; "gaussian" if no structure was found.
    anchors_ : int array of shape (m,)
        Nodes of ``graph_``. With the field "gaussian", one of the nodes that each centre is made of.
    weights_ : array of shape (m,)
        w_l; volumes in the manifold clock, whether features are normalised or not.
    scale_ : float
        Features represent ``scale_`` times ``kernel_``, or the function without symmetry; 1 without ``normalize``.
    starts_ : int array
        Nodes whose signatures the field was fitted to.
    bound_ : array of shape (m,)
        Largest value that each feature can take (of the left side, if there are two); it grows like the root of
        ``scale_``.
    error_ : ErrorEstimate
        Measured at held-out nodes; the share of the graph is computed on first access.
    training_ : TrainingInfo or None
        Record of the training of a network.
    asymmetric_ : bool
        Whether features have two sides, for kernels without nonnegative features and functions without symmetry.
    n_features_in_, n_features_out_ : int

    See Also
    --------
    GraphRandomFeatures : features of the nodes of a graph.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
    >>> features = ManifoldRandomFeatures(HeatKernel(0.05), n_features=512, random_state=0).fit(Sphere())
    >>> new = Sphere().sample(100, seed=1)
    >>> bool(np.allclose((features.transform(new) ** 2).sum(axis=1), 1, rtol=0.02))
    True
    >>> exact = features.scale_ * Sphere().heat_kernel(new, new, 0.05)
    >>> bool(np.linalg.norm(features.kernel_matrix(new) - exact) < 0.01 * np.linalg.norm(exact))
    True
    """

    def __init__(  # noqa: PLR0913  (an estimator remembers all its options)
        self,
        kernel: Any = None,
        *,
        normalize: bool = True,
        scale: float = 1.0,
        times: tuple[float, float] | None = None,
        n_features: int | str = "auto",
        field: Any = "auto",
        anchors: str = "farthest",
        weights: str = "auto",
        teacher: Any = "auto",
        teacher_options: dict[str, Any] | None = None,
        field_options: dict[str, Any] | None = None,
        graph: Any = None,
        n_starts: int | None = None,
        anchor_density: ArrayLike | None = None,
        loss: str | None = None,
        random_state: SeedLike = None,
        sparse_output: bool = False,
        n_jobs: int = -1,
        device: str = "auto",
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.normalize = normalize
        self.scale = scale
        self.times = times
        self.n_features = n_features
        self.field = field
        self.anchors = anchors
        self.weights = weights
        self.teacher = teacher
        self.teacher_options = teacher_options
        self.field_options = field_options
        self.graph = graph
        self.n_starts = n_starts
        self.anchor_density = anchor_density
        self.loss = loss
        self.random_state = random_state
        self.sparse_output = sparse_output
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """Return the paper's recipe: walks, its network, all nodes as anchors.

        The kernel exp(-20 L) on the graph of 8 nearest neighbours (24 on the Mobius strip), 100,000 walks from each
        of 1000 nodes that halt with probability .01, three layers of 128 units trained on the relative error for
        1000 epochs, the plain sum over all nodes, and the scale of the graph's kernel (``normalize=False``).

        Parameters
        ----------
        **changes
            Parameters with other values.

        Examples
        --------
        >>> from manifoldrf import ManifoldRandomFeatures
        >>> recipe = ManifoldRandomFeatures.paper(random_state=0)
        >>> recipe.teacher, recipe.field, recipe.n_starts
        ('walks', 'mlp', 1000)
        """
        recipe: dict[str, Any] = dict(  # noqa: C408  (the keywords of the constructor)
            kernel=DiffusionKernel(20.0),
            normalize=False,
            n_features="all",
            field="mlp",
            anchors="all",
            weights="uniform",
            teacher="walks",
            teacher_options={"n_walks": 100_000, "p_halt": 0.01},
            field_options={"network": "paper"},
            graph=functools.partial(knn_graph, n_neighbors=8),
            n_starts=1000,
            loss="relative",
        )
        return cls(**(recipe | changes))

    def fit(self, X: Any, y: Any = None) -> Self:
        """Discretise the space, compute signatures and fit the field.

        Parameters
        ----------
        X : array-like of shape (n, d), TriangleMesh, AbstractManifold or Graph
            The space: points on it, its mesh, the manifold itself, or a graph with points. Meshes and graphs of
            other libraries work as in :meth:`TriangleMesh.of` and :meth:`Graph.from_affinity`, and give the same
            features.
        y : ignored
        """
        del y
        return self._fit(X, compute_signatures)

    @one_blas_thread()  # the errors that decide between weights and fields must not depend on the number of threads
    def _fit(self, X: Any, compute: Compute, learner: str | None = None) -> Self:
        """Fit with signatures from ``compute``, which may use other machines.

        A learner needs features with one side: others are refused as soon as the kernel is known on the graph.
        """
        space = check_space(self, X)
        if hasattr(self, "times_"):  # of an earlier fit
            del self.times_
        options = fit_options(self.get_params(deep=False), compute=compute)
        if self.times is not None:
            return self._fit_times(space, options)
        problem = make_problem(space, self.kernel, options)
        if learner is not None and (problem.function is not None or problem.asymmetric):
            found = "those of a function whose values change if its arguments are exchanged"
            found = (
                found if problem.function is not None else f"those of {shortened(problem.kernel)}, with two sides"
            )
            reject("features", f"features with one side in {learner}", found)
        options = settle_options(problem, options)
        many = problem.graph.n_steps is None or problem.dim > FEW_DIMS  # dimensions, maybe too many for a graph
        if many and is_unstructured(problem, space, self.kernel, options):
            self.map_, choice = fit_unstructured(problem, self.kernel, options)
            return self._finish(choice, "uniform", options)
        anchors = choose_anchors(problem, options)
        quadrature, held_out = choose_weights(problem, anchors, options)
        while (more := more_anchors(problem, quadrature, options)) is not None:
            anchors = more
            quadrature, held_out = choose_weights(problem, anchors, options)
        choice = choose_field(problem, anchors, quadrature, held_out, options)
        notes = note_flat(problem.notes, held_out.kernel)
        problem = problem if notes == problem.notes else dataclasses.replace(problem, notes=notes)
        self.map_ = FeatureMap(problem, choice.field, anchors, feature_weights(problem, quadrature))
        if problem.function is not None:
            self.map_, choice = fit_mixing(self.map_, choice, held_out.nodes, options)
        if self.map_.problem.series_error is not None:
            self.map_ = check_function(self.map_, choice.error, self.kernel, space, options)
        return self._finish(choice, quadrature.method, options)

    def _fit_times(self, space: Any, options: FitOptions) -> Self:
        """Fit at the shortest time of each octave, and take the features of the kernel."""
        times = check_times(self.times)
        kernel = check_in_range(self.kernel, times)
        if self.scale != 1:
            reject("scale", "1 with `times`", self.scale)
        check_option(self.field, "field", ("auto", "step"))

        def fit_at(t: float) -> tuple[FeatureMap, ErrorEstimate]:
            member: Any = clone(self).set_params(kernel=HeatKernel(t), times=None, normalize=False)
            member.random_state = options.streams.generator(f"times.{t!r}")
            # The shortest time is the hardest: others would repeat its warnings, or call long times useless.
            hidden = (FeatureWarning, GraphWarning) if t > times[0] else ()
            with without_warnings(*hidden):
                member._fit(space, options.signatures.compute)
            return member.map_, member._error[0]

        self.times_ = TimeRange.fit(fit_at, times, options.n_jobs)
        self._streams = options.streams
        return self._use(self.times_, kernel)

    def at(self, kernel: Any) -> Self:
        """The features of another kernel from the same fit, which must have been made with ``times``.

        Parameters
        ----------
        kernel : float, HeatKernel or MaternKernel
            A heat time in the range of ``times``, or a kernel; a Matern kernel has ``clock="manifold"``. It is a
            sum over heat kernels of the range, so the range must hold nearly all of it.

        Returns
        -------
        features : ManifoldRandomFeatures
            Fitted features, which share the tables of this fit. Times in different octaves have different
            anchors, hence different numbers of features.

        Examples
        --------
        >>> from manifoldrf import ManifoldRandomFeatures, Sphere
        >>> features = ManifoldRandomFeatures(times=(0.05, 0.4), random_state=0).fit(Sphere())
        >>> [features.at(t).n_features_out_ for t in (0.05, 0.07, 0.2)]
        [393, 393, 99]
        """
        family = self._family()
        found = copy.copy(self)
        del found.times_
        found.kernel = kernel if isinstance(kernel, AbstractKernel) else HeatKernel(kernel)
        found.times = None
        return found._use(family, found.kernel)

    def prepare(self, Z: Any) -> PreparedPoints:
        """Evaluate the tables of a fit with ``times`` at points, once for all times.

        Parameters
        ----------
        Z : array-like of shape (q, d)

        Returns
        -------
        PreparedPoints
            ``prepared.at(t)`` are the features ``features.at(t).transform(Z)``, up to 1e-6 of the largest, without
            another evaluation of the tables: for searches over t. It stores four numbers for each feature.
            ``prepared.kernel_matrix(t)`` is the kernel between the points.
        """
        points, _ = self._check_queries(Z)
        return PreparedPoints(self._family(), points, bool(self.normalize), check_jobs(self.n_jobs), warn=True)

    def _family(self) -> TimeRange:
        check_is_fitted(self, "map_")
        if not hasattr(self, "times_"):
            raise ValueError(
                "Features of other times need a fit with a range of times: times=(shortest, longest)."
            )
        family: TimeRange = self.times_
        return family

    def _use(self, family: TimeRange, kernel: AbstractKernel) -> Self:
        """Take the features of a kernel from the tables of all times."""
        self.map_ = family.at(kernel, normalize=bool(self.normalize))
        self.field_, self.quadrature_ = "step", "of each octave"
        self.training_: TrainingInfo | None = None
        self.starts_ = np.arange(self.graph_.n_nodes)
        self._source = family
        self._error: tuple[ErrorEstimate, bool] | None = None  # computed on first access
        return self

    def _finish(self, choice: FieldChoice, quadrature: str, options: FitOptions) -> Self:
        """Set the attributes that describe a fit."""
        if options.normalize:
            self.map_ = self.map_.normalized(options.n_jobs)
        self.field_, self.starts_, self.training_ = choice.name, choice.starts, choice.training
        self.quadrature_ = quadrature
        self._error, self._streams = (choice.error, False), options.streams
        return self

    @property
    def graph_(self) -> Graph:
        """The graph that discretises the space."""
        return self._map().problem.graph

    @property
    def kernel_(self) -> Any:
        """The kernel, as given or chosen."""
        return self._map().problem.kernel

    @property
    def anchors_(self) -> Any:
        """Nodes at which the field is evaluated."""
        return self._map().anchors

    @property
    def weights_(self) -> FloatArray:
        """Quadrature weights of the anchors; volumes in the manifold clock."""
        fitted = self._map()
        return fitted.weights / fitted.scale**2

    @property
    def scale_(self) -> float:
        """Factor of the kernel that features represent; 1 without ``normalize``."""
        return self._map().factor

    @property
    def bound_(self) -> FloatArray:
        """Largest value that each feature can take."""
        fitted = self._map()
        return fitted.output_scale * fitted.bound

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return len(self._map().anchors)

    @property
    def error_(self) -> ErrorEstimate:
        """Error of the kernel, measured at held-out nodes."""
        problem = self._map().problem
        if self._error is None:  # features of one of many times
            self._error = self._source.error(problem.kernel, self._streams, check_jobs(self.n_jobs)), True
            warn_of_graph(self._error[0])
        error, whole = self._error  # read once, because several threads may add the share of the graph
        if not whole:
            error = error.with_graph(graph_error(problem, self._streams, check_jobs(self.n_jobs)))
            self._error = error, True
            if problem.series_error is None:  # else `fit` has warned
                warn_of_graph(error)
        return error

    def _get_fitted_attr_html(self, *args: Any, **options: Any) -> Any:
        """Attributes for notebooks. scikit-learn reads them all, which must neither compute the error nor warn."""
        shown = copy.copy(self)
        if hasattr(self, "_error"):
            shown._error = (_UNKNOWN if self._error is None else self._error[0]), True
        return BaseEstimator._get_fitted_attr_html(shown, *args, **options)

    def _html_repr(self) -> str:
        """What notebooks show: a table of a fit, computing nothing and warning of nothing."""
        if not hasattr(self, "map_"):
            return str(super()._html_repr())
        return html_table(f"{type(self).__name__}, fitted", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """The summary as names and texts, with the error as far as it is known."""
        error, whole = self._error or (None, True)
        *rows, (name, text) = summary_rows(self, error)
        return [*rows, (name, text if whole else f"{text}; `error_` adds the share of the graph if it can")]

    def _map(self) -> FeatureMap:
        check_is_fitted(self, "map_")
        fitted: FeatureMap = self.map_
        return fitted

    def transform(self, X: Any, side: str | None = None) -> Any:
        """Features of points.

        Features of points away from the space fade to zero; one warning says how many there are.

        Parameters
        ----------
        X : array-like of shape (q, d)
        side : {"left", "right"}, optional
            Required for kernels without nonnegative features and for functions without symmetry, where
            K(x, y) = left(x) . right(y).

        Returns
        -------
        features : array, or CSR array with ``sparse_output``, of shape (q, m)
            In the float type of ``X``.
        """
        points, dtype = self._check_queries(X, "X")
        options = {"side": self._check_side(side), "device": self.device}
        jobs = check_jobs(self.n_jobs)
        return self._map().features(points, dtype, jobs, as_sparse=self.sparse_output, **options)

    def transform_blocks(self, X: Any, *, side: str | None = None, n_rows: int | None = None) -> Iterator[Any]:
        """Features of more points than memory holds, a block at a time.

        Parameters
        ----------
        X : array of shape (q, d)
            Anything with a shape and slices of rows, such as ``numpy.load(file, mmap_mode="r")``: one block is read
            and checked at a time.
        side : {"left", "right"}, optional
            As in :meth:`transform`.
        n_rows : int, optional
            Points in a block; by default 256 MB of features, 100 MB of sparse ones, and at most 32,768 points.

        Yields
        ------
        features : array, or CSR array with ``sparse_output``, of shape (rows of the block, m)
            With the same bits as :meth:`transform` on the CPU. Warnings count far points block by block.

        Examples
        --------
        >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
        >>> features = ManifoldRandomFeatures(HeatKernel(0.05), sparse_output=True, random_state=0).fit(Sphere())
        >>> many = Sphere().sample(5000, seed=1)
        >>> [block.shape[0] for block in features.transform_blocks(many, n_rows=2000)]
        [2000, 2000, 1000]
        """
        chosen = self._check_side(side)
        size = self._map().block_size(as_sparse=self.sparse_output)
        if n_rows is not None:
            size = check_integer(n_rows, "n_rows", 1)
        shape = getattr(X, "shape", None)
        if shape is None:
            reject("X", "an array of shape (q, d); `transform` takes other things", type(X).__name__, TypeError)
        if len(shape) != 2:
            reject("X", "an array of shape (q, d)", f"shape {shape}")
        return (self.transform(X[start : start + size], chosen) for start in range(0, X.shape[0], size))

    @quiet_underflow()
    def kernel_matrix(self, Z: Any, Y: Any = None) -> FloatArray:
        """K(z, y) = phi(z) . phi(y), shape (len(Z), len(Y)); between the points of ``Z`` without ``Y``."""
        points, dtype = self._check_queries(Z)
        others = points if Y is None else self._check_queries(Y, "Y")[0]
        right, windows = self._rows(others, "right")
        left = right
        if Y is not None or self.asymmetric_:
            left, more = self._rows(points, "left")
            windows = np.concatenate([windows, more]) if Y is not None else windows
        warn_of_far(windows)
        return product(left, right, check_jobs(self.n_jobs)).astype(dtype, copy=False)

    @one_blas_thread()
    def matvec(self, Z: Any, v: ArrayLike) -> FloatArray:
        """K v = phi(Z) (phi(Z)^T v) in time proportional to the number of points.

        Parameters
        ----------
        Z : array-like of shape (q, d)
        v : array-like of shape (q,) or (q, c)
        """
        points, dtype = self._check_queries(Z)
        columns = check_columns(v, "v", len(points), "point")
        spans = list(self._map().spans(len(points)))
        total: Any = 0.0
        window = np.ones(len(points))
        for span in spans:
            rows, window[span] = self._rows(points[span], "right")
            total = total + rows.T @ columns[span]
        warn_of_far(window)
        if len(spans) == 1 and not self.asymmetric_:
            result = rows @ total
        else:
            result = np.concatenate([self._rows(points[span], "left")[0] @ total for span in spans])
        return np.asarray(result[:, 0] if np.ndim(v) == 1 else result, dtype=dtype)

    def distance_to_space(self, Z: Any) -> FloatArray:
        """Distance of points to the nearest node or, on a mesh, to its surface, shape (q,)."""
        points, _ = self._check_queries(Z)
        return self._map().problem.distance(points)

    def summary(self) -> str:
        """What was fitted, chosen and estimated, as a text of a few lines."""
        self._map()
        return text_table(summary_rows(self, self.error_))

    def save(self, path: Any) -> Path:
        """Write the fitted features to one file; :func:`manifoldrf.load` reads it, on any machine.

        The file holds arrays and plain text, no code. Functions given as ``kernel`` or ``graph`` are not stored,
        because they are not needed after the fit. Neither is ``n_jobs``: a loaded model has the default.
        """
        self._map()
        return save_state(path, KIND, state_of(self))

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Self:
        """The estimator of a file; raises if the state is not one that :meth:`save` writes."""
        return restore(cls(**{"normalize": False} | state["params"]), state)  # older files do not have it

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the features: ``manifoldrandomfeatures0``, ..."""
        del input_features
        stem = type(self).__name__.lower()
        return np.array([f"{stem}{k}" for k in range(self.n_features_out_)], dtype=object)

    @property
    def asymmetric_(self) -> bool:
        """Whether points have a left and a right side."""
        return self._map().two_sided

    def _check_side(self, side: str | None) -> str:
        if side is not None:
            return check_option(side, "side", _SIDES)
        if self.asymmetric_:
            what = f"This {type(self.kernel_).__name__} has no nonnegative features"
            if self._map().mixing is not None:
                what = "The function given as kernel is not symmetric"
            raise ValueError(
                f"{what}: its factors differ, so `side` must be 'left' or 'right'; `kernel_matrix` and `matvec` "
                "use both."
            )
        return "left"

    def _check_queries(self, Z: Any, name: str = "Z") -> tuple[FloatArray, Any]:
        """Points as float64, and the type that results are to have."""
        check_is_fitted(self, "map_")
        points, dtype = estimator_points(self, Z, name, reset=False)
        metric = self.graph_.metric
        return (points if metric is None else metric.check(points, name)), dtype

    def _rows(self, points: FloatArray, side: str) -> tuple[Any, FloatArray]:
        return self._map().rows(points, check_jobs(self.n_jobs), side=side, device=self.device)


def heat_signature(
    space: ArrayLike | TriangleMesh, times: ArrayLike, *, at: ArrayLike | None = None, n_jobs: int = -1
) -> FloatArray:
    """The heat-kernel signature: the heat K_t(x, x) that is still at x after each time t.

    It depends on the shape alone, not on position, orientation or order of the vertices, so it can be compared
    between scans, unlike features of two fits. At short times it is (4 pi t)^(-dim/2), changed by the curvature at
    x and doubled at an edge; at long times it is one over the volume. For scans of different size, divide
    coordinates by the square root of the area first.

    Parameters
    ----------
    space : TriangleMesh or array-like of shape (n, d)
        Meshes and clouds that are finer than a time requires are thinned, as in :class:`ManifoldRandomFeatures`.
    times : float or array-like of shape (k,)
        Heat times, in units of length squared.
    at : array-like of shape (q, d), optional
        Points of the space; all vertices or points by default.
    n_jobs : int, default=-1
        Number of threads; the result does not depend on it.

    Returns
    -------
    ndarray of shape (q, k)
        In units of one over volume.

    Notes
    -----
    At short times the signature varies little over a shape, and the errors of two meshes of it may be as large: see
    the guide to meshes.

    Examples
    --------
    >>> from manifoldrf import Sphere, heat_signature
    >>> points = Sphere().grid(1000)
    >>> heat_signature(points, [0.1, 1.0], at=points[[0, 500]]).round(2).tolist()
    [[0.82, 0.11], [0.82, 0.11]]
    >>> Sphere().heat_kernel([[0, 0, 1]], [[0, 0, 1]], 0.1).round(2).tolist()
    [[0.82]]
    """
    space = as_space(space, "space")
    moments = np.atleast_1d(as_floats(times, "times"))
    if not moments.size:
        reject("times", "at least one time", "none")
    columns = []
    for t in check_vector(moments, "times", moments.size, POSITIVE):
        features = ManifoldRandomFeatures(
            HeatKernel(float(t)),
            normalize=False,
            n_features="all",
            sparse_output=True,
            random_state=0,
            n_jobs=n_jobs,
        ).fit(space)
        if at is None:
            at = space.vertices if isinstance(space, TriangleMesh) else space
        blocks = features.transform_blocks(np.asarray(at))
        columns.append(np.concatenate([np.asarray(rows.multiply(rows).sum(axis=1)).ravel() for rows in blocks]))
    return np.column_stack(columns)

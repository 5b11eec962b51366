"""Random frequencies, independent or orthogonal."""

import numpy as np

from manifoldrf._validation import FloatArray


def draw_frequencies(m: int, dim: int, rng: np.random.Generator, *, orthogonal: bool) -> FloatArray:
    """Draw ``m`` vectors w ~ N(0, I), shape (m, dim).

    ``orthogonal``: those in a block of ``dim`` are orthogonal to each other. Each is still N(0, I): a direction
    from the Haar measure, and a length of its own from the chi distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines._frequencies import draw_frequencies
    >>> w = draw_frequencies(3, 3, np.random.default_rng(0), orthogonal=True)
    >>> bool(np.abs(w @ w.T - np.diag(np.diag(w @ w.T))).max() < 1e-14)
    True
    """
    if not orthogonal:
        return rng.standard_normal((m, dim))
    n_blocks = -(-m // dim)
    vectors, triangles = np.linalg.qr(rng.standard_normal((n_blocks, dim, dim)))
    # The signs of a QR decomposition are a habit of the library; these make the rotations Haar distributed.
    signs = np.where(np.diagonal(triangles, axis1=1, axis2=2) < 0, -1.0, 1.0)  # (n_blocks, dim)
    directions = (vectors * signs[:, None, :]).transpose(0, 2, 1).reshape(-1, dim)[:m]
    return np.asarray(np.sqrt(rng.chisquare(dim, m))[:, None] * directions)

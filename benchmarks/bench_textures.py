"""Whether texture descriptors are quick: against a plain loop, and how much more seeds cost.

Each row of the table says what, the figure seen, the limit, and whether it holds. All are ratios of times taken in
one run, by one thread.

1. the time of a descriptor among 90,000 (68 windows in each of 1332 images of 452 x 452 pixels) over that of a
   plain loop with ``numpy.cov`` and ``scipy.linalg.logm`` on some of the same windows, channels given to both: at
   most 1/20;
2. rotating, smoothing and describing the windows of one seed at the size of the paper, scaled up from some of the
   pictures, over the 120 s that two cores have in a minute: at most 1;
3. three seeds over one: at most 1.6, since pictures are turned once for all.

An argument selects the rows whose titles contain it. ``--quick`` takes a tenth of the images. Exits with code 1 if
a limit is missed, with ``--quick`` never. The machine is to do nothing else meanwhile.
"""

import numpy as np
from scipy.linalg import logm
from table import Row, run_cases, seconds

from manifoldrf import spd_to_vectors, texture_channels
from manifoldrf.applications.textures import window_covariances
from reproduction.texture_data import Plates, generated_plates
from reproduction.texture_views import Protocol, draw_views

IMAGES, WINDOWS, SIDE, WINDOW = 1332, 68, 452, 32
LOOP = 400  # windows of the plain loop: enough for two digits
PLATES, SHARE = 111, 12  # pictures of the paper; how many are taken of them


def plain(channels, corners):
    """One window after the other, as one would write it first."""
    rows, columns = np.triu_indices(5)
    scales = np.where(rows == columns, 1.0, np.sqrt(2.0))
    found = []
    for row, column in corners:
        pixels = channels[:, row : row + WINDOW, column : column + WINDOW].reshape(5, -1)
        found.append(logm(np.cov(pixels) + 1e-6 * np.eye(5))[rows, columns] * scales)
    return np.array(found)


def against_a_loop(scale):
    """Descriptors from channels, all of them at once for each image, over a loop."""
    rng = np.random.default_rng(0)
    channels = texture_channels(rng.random((SIDE, SIDE)))
    n_images = IMAGES // scale
    corners = rng.integers(0, SIDE - WINDOW + 1, (n_images, WINDOWS, 2))

    def ours():
        for chosen in corners:
            spd_to_vectors(window_covariances(channels, chosen, WINDOW), ridge=1e-6)

    some = corners.reshape(-1, 2)[:LOOP]
    mine, theirs = spd_to_vectors(window_covariances(channels, some, WINDOW), ridge=1e-6), plain(channels, some)
    apart = np.abs(mine - theirs).max()
    total = seconds(ours)
    loop = min(seconds(lambda: plain(channels, some)) for _ in range(3))
    n = n_images * WINDOWS
    name = f"{n} descriptors, each / numpy.cov and logm in a loop ({total:.2f} s; apart {apart:.0e})"
    return [Row(name, (total / n) / (loop / LOOP), "<=", 0.05)]


def pictures(n):
    """Pictures of the size of the album."""
    made = generated_plates(side=640)
    return Plates(made.names[:n], made.images[:n], made.source)


def whole_protocol(scale):
    """Everything from pictures to descriptors, for one seed and for three."""
    share = max(2, SHARE // scale)
    plates = pictures(share)
    draw_views(pictures(1), Protocol(), [0], n_jobs=1)  # loads what is loaded on first use
    one = min(seconds(lambda: draw_views(plates, Protocol(), [0], n_jobs=1)) for _ in range(2))
    three = min(seconds(lambda: draw_views(plates, Protocol(), [0, 1, 2], n_jobs=1)) for _ in range(2))
    needed = one * PLATES / share
    name = f"pictures to 89,466 descriptors, one thread, from {share} of 111 pictures ({needed:.0f} s) / 120 s"
    return [
        Row(name, needed / 120, "<=", 1.0),
        Row(f"three seeds / one ({three:.2f} s, {share} pictures)", three / one, "<=", 1.6),
    ]


CASES = {"descriptors": against_a_loop, "protocol": whole_protocol}

if __name__ == "__main__":
    run_cases("Time of texture descriptors.", CASES, full=1, quick=10)  # by how much fewer images

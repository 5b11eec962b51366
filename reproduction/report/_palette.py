"""Colours, marks and dashes of all figures; lines can be told apart without colour."""

from collections.abc import Mapping
from typing import Any

# The palette of Okabe and Ito, which stays apart without colour vision. Marks and dashes differ as well.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "0.5"
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))
# Methods that several experiments share look alike in all of them; our own are black and wide.
METHODS: Mapping[str, Mapping[str, Any]] = {
    "MRF": {"color": BLACK, "marker": "o", "linewidth": 2.8, "zorder": 5},
    "RFF": {"color": BLUE, "marker": "s"},
    "ORF": {"color": SKY, "marker": "D"},
    "PRF": {"color": VERMILION, "marker": "^"},
    "PORF": {"color": ORANGE, "marker": "v"},
    "GERF": {"color": GREEN, "marker": "P"},
    "Nystrom": {"color": PURPLE, "marker": "X"},
}
# Methods whose names in records are not theirs in full.
NAMES = {
    "Nystrom": "Nyström",
    "geodesic Nystrom": "geodesic Nyström",
    "Nystroem + ridge": "Nyström + ridge",
}

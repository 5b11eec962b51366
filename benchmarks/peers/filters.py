"""Heat filters of pygsp on a graph of this library."""

import logging

import numpy as np
from pygsp import filters, graphs
from scipy import sparse


def pygsp_graph(graph):
    """The graph of pygsp with the same normalised Laplacian, and its largest eigenvalue estimated."""
    logging.disable(logging.WARNING)  # it warns of loops, which the lazy walk on a mesh has
    peer = graphs.Graph(sparse.csr_matrix(graph.affinity, copy=True), lap_type="normalized")
    peer.estimate_lmax()
    return peer


def heat_filter(peer, tau, columns, order):
    """exp(-tau L) X by Chebyshev polynomials; pygsp counts time in units of the largest eigenvalue."""
    found = filters.Heat(peer, scale=tau * peer.lmax).filter(columns, method="chebyshev", order=order)
    return np.asarray(found).reshape(columns.shape)

"""From signatures to functions on the space: fields, their anchors and their quadrature weights."""

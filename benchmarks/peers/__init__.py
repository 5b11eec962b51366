"""The same work by other libraries and by this one, in one run on one machine: ``make bench-peers``."""

"""The same work by other libraries and by this one, in one run: ``make bench-peers``."""

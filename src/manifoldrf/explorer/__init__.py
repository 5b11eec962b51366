"""One page in the browser that shows a fitted model: no server, no network."""

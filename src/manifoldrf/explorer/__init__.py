"""An HTML page that shows a fitted model in the browser, without server and network."""

"""One module a notebook: the grid of runs, the function that turns one grid row into one result row, the tables."""

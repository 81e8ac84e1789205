"""What the rows are and in which order they come: formats, order, sampling, audit."""

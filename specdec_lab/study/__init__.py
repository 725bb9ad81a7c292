"""The study room: theory, measurements, figures and widgets, above everything else."""

"""Speed on this machine, side by side; ``python -m specdec_lab measure`` runs it.

One file a part, such as `cost` or `decode`; `parts` says what a part is made of, and runs it. All
of them use the one clock of the course, `specdec_lab.study.stopwatch`; the recordings lie in
``data/measurements/<machine>/``.
"""

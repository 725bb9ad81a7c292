"""Checks of the exercises: each ``check_...`` function says in a friendly sentence what is right or
what to look at again.
"""

from __future__ import annotations

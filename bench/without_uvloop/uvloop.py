"""Stands before the installed uvloop and can't be imported, so that asyncio's loop is taken."""

raise ImportError("this benchmark runs on asyncio's own loop")

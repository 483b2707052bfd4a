"""The unittest example runs through plays, by `make languages` and by the test of its page."""

collect_ignore = ["python/test_plan.py"]

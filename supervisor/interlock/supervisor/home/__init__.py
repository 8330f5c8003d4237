"""Files of the home: changed by one process at a time, and temporary ones that go again."""

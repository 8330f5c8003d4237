"""`python -m interlock.supervisor.cli`: the same as `interlock`."""

from interlock.supervisor.cli import main

main()

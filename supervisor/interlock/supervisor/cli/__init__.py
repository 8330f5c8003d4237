"""The commands of interlock."""

from interlock.supervisor.cli.entry import main as main

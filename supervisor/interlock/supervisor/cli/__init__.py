"""The commands of interlock."""

from interlock.supervisor.cli.app import main as main

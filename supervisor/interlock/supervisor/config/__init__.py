"""Reading, layering, trusting and checking configuration."""

from interlock.supervisor.config.diff import Diff as Diff
from interlock.supervisor.config.diff import diff as diff
from interlock.supervisor.config.model import AgentEntry as AgentEntry
from interlock.supervisor.config.model import CliEntry as CliEntry
from interlock.supervisor.config.model import Loaded as Loaded
from interlock.supervisor.config.model import Problem as Problem
from interlock.supervisor.config.model import ServerEntry as ServerEntry
from interlock.supervisor.config.model import Settings as Settings
from interlock.supervisor.config.model import worker_name as worker_name
from interlock.supervisor.config.read import load as load
from interlock.supervisor.config.watch import changes as changes

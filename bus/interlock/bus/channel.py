"""What workers speak through: the control channel, the serving and the calling end of data."""

from interlock.bus.control import ControlChannel
from interlock.bus.dataedge import CallAnswer, DataEdge
from interlock.bus.dataserver import DataServer, IncomingCall

__all__ = ["CallAnswer", "ControlChannel", "DataEdge", "DataServer", "IncomingCall"]

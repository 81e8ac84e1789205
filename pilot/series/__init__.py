"""What happens in the series of a run: spikes, trends, dead stretches (numpy only)."""

from pilot.series.advice import Advice, advice
from pilot.series.detect import detect
from pilot.series.monitor import Monitor
from pilot.series.point import Point

__all__ = ["Advice", "Monitor", "Point", "advice", "detect"]

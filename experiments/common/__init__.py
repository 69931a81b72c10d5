"""What the experiments share: running programs, intervals, and the form of a result."""

from .experiment import Experiment, Failed, bubbles_examples
from .machine import available_memory, caches
from .programs import APPS, COPLACE, PRELOAD, TOP, Program

__all__ = ["APPS", "COPLACE", "PRELOAD", "TOP", "Experiment", "Failed", "Program",
           "available_memory", "bubbles_examples", "caches"]

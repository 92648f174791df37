# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the package tensorboard from PyPI reads in a folder of event files (tests/io/tensorboard.cpp and
tests/train/watching.py run it): a line for each tag, as in: train/loss 1=2.5 2=2.25

    tensorboard_python.py FOLDER
"""
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
for tag in sorted(events.Tags()["scalars"]):
    print(tag, *(f"{event.step}={event.value:g}" for event in events.Scalars(tag)))
for tag in sorted(events.Tags()["tensors"]):
    for event in events.Tensors(tag):
        text = tensor_util.make_ndarray(event.tensor_proto).item()
        print(tag, f"{event.step}={text.decode()}")

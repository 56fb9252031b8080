"""The engine: training steps of unmodified sessions on PJRT.

    sessions -> requests, facts -> cut -> step -> device
                truth <-> values

`sessions.attach` makes a session one whose training steps are programs of today's XLA; `cut` decides, without
TensorFlow, what of a run that is; `device` is the narrow seam behind which programs run.
"""

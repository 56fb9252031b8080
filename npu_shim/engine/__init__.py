"""The engine: training steps of unmodified sessions on PJRT.

    sessions -> requests, facts -> cut -> step -> device
                truth <-> values

`sessions.attach` makes a session run its training steps as programs of today's XLA. `cut`, which does not need
TensorFlow, decides which nodes of a run the program takes. `device` is the narrow interface behind which programs run,
in this process or in a `worker`, for which `installing` makes an environment.
"""

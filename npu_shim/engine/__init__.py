"""The engine: training steps of unmodified sessions on PJRT.

    sessions -> runtime: runs -> partition: facts, cut -> step -> device
                         residency <-> values

`sessions.attach` makes a session run its training steps as programs of today's XLA. `partition`, most of which does
not need TensorFlow, decides which nodes of a run the program takes. `runtime` knows which runs are steps, which
programs they have, and where each variable's newest value is. `device` is the narrow interface behind which programs
run, in this process or in a worker, for which `installing` makes an environment.
"""

"""Which ranks are alive: progress, questions between ranks, one error that names the missing one."""

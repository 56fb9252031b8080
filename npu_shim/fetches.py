"""What stands in the fetches of Session.run, however they are nested."""


def leaves_of(fetches):
    """Returns what is fetched, as a list; tf.nest cannot sort a MonitoredSession's keys, which are hooks and str."""
    if isinstance(fetches, dict):
        fetches = list(fetches.values())
    if not isinstance(fetches, (list, tuple)):
        return [] if fetches is None else [fetches]
    return [leaf for part in fetches for leaf in leaves_of(part)]

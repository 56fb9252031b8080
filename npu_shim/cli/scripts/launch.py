"""npu-shim launch -n N [--hosts H1,H2 --host-index I] [--port P] [--grace S] [options of run] SCRIPT ARGS...

Without -n, and with --hosts and --devices, the hosts run a script that knows of no ranks as one.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import tempfile
from typing import Mapping, Sequence

from npu_shim.cli import pages
from npu_shim.cli.scripts import arguments
from npu_shim.cli.scripts import run as running
from npu_shim.cli.scripts.arguments import Option
from npu_shim.distributed.hosts import job as of_hosts
from npu_shim.distributed.job import description, rank_table
from npu_shim.distributed.launcher import layout, workers
from npu_shim.options import devices, engine
from npu_shim.options.entrances import forced
from npu_shim.pjrt.placement import ALL
from npu_shim.rewriter.errors import ConfigError

COUNT, HOSTS, INDEX, PORT, GRACE = "-n", "--hosts", "--host-index", "--port", "--grace"
OWN_INPUT = "--input-per-host"
SECONDS = 10  # of grace
OPTIONS = {
    COUNT: Option(
        "a number of workers", "N", "how many workers, over all hosts; without it one for each GPU of this host (for "
        "each N of them, with --devices N), or for each device of the rank table that RANK_TABLE_FILE names",
    ),
    HOSTS: Option(
        "the names of the hosts, H1,H2", "H1,H2", "the hosts, by the names at which they reach each other; the same "
        "command runs on each of them, with the host's number",
    ),
    OWN_INPUT: Option(
        "", "", "with --hosts and --devices: each host has an input of its own, and a step's batch is the batches of "
        "all of them; without it all have the same input, of which each feeds its part",
    ),
    INDEX: Option("this host's number in --hosts, from 0", "I", "this host's number in --hosts, from 0"),
    PORT: Option(
        "the number of a port", "P", "rank R listens on port P + R; with several hosts from %d on, or NPU_SHIM_PORT; "
        "on one host, where it is not given, on free ports" % description.FIRST_PORT,
    ),
    GRACE: Option(
        "a number of seconds", "S", "seconds that the others have to end when one has failed, default %d" % SECONDS
    ),
    **running.OPTIONS,
}  # fmt: skip
OF_THE_FIRST = (running.REPORT, running.CALIBRATE)  # rank 0 writes for all: the ranks' graphs are the same
PORTS = range(1, 65536)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describes the arguments, for help only: `main` takes them as they are."""
    parser.usage = (
        "npu-shim launch -n N [OPTIONS] SCRIPT ARGS...   or   npu-shim launch -n N [OPTIONS] -m MODULE ARGS..."
    )
    arguments.describe(parser, OPTIONS)


def main(argv: Sequence[str]) -> int:
    """Runs the script in this host's workers; returns 0, or the exit status of the worker that failed first."""
    given, argv = arguments.split("launch", argv, OPTIONS)
    options = dict(given)
    _check_script(argv[0])
    _check_passed_on(given)
    if HOSTS in options and COUNT not in options and running.DEVICES in options:
        return _as_one(given, argv)
    if OWN_INPUT in options:
        raise ConfigError(
            "%s needs %s and %s, without %s: it is for hosts that run a script as one; ranks (%s N) have an input of "
            "their own" % (OWN_INPUT, HOSTS, running.DEVICES, COUNT, COUNT)
        )
    own = _devices(options)
    places, index = _places(options, own)
    gpus = _gpus(places, index, own)
    if own == ALL and gpus:  # all that the worker has, of which it is told the number
        given = [pair for pair in given if pair[0] != running.DEVICES] + [(running.DEVICES, str(len(gpus[0])))]
    ports = _ports(places, index, options.get(PORT))
    started = [
        workers.Worker(
            "rank %d" % place.rank, "%s:%d" % (place.host, ports[place.rank]),
            ["run", *_passed_on(given, place.rank == 0), *argv],
            layout.environment_of(place, places, ports, [",".join(cards) for cards in gpus], os.environ),
        )
        for place in _here(places, index)
    ]  # fmt: skip
    failure = workers.run(started, _number(options.get(GRACE, str(SECONDS)), GRACE))
    if failure is None:
        return 0
    return _tell(failure)


def _as_one(given: Sequence[tuple[str, str]], argv: Sequence[str]) -> int:
    """Runs the script on this host as one of several that run each of its steps together; returns as `main`."""
    options = dict(given)
    names, index = _hosts(options), options.get(INDEX)
    if len(names) < 2 or len(set(names)) != len(names):
        raise ConfigError("%s is '%s', expected two hosts or more, each once" % (HOSTS, options[HOSTS]))
    if options.get(running.ENGINE) == "session":
        raise ConfigError("%s without %s needs the engine, and %s is session" % (HOSTS, COUNT, running.ENGINE))
    number = _index(names, index)
    port = description.first_port(os.environ) if PORT not in options else int(_number(options[PORT], PORT))
    if port not in PORTS:
        raise ConfigError("%s is %d, expected the number of a port" % (PORT, port))
    engine_too = [] if running.ENGINE in options else ["%s=pjrt" % running.ENGINE]
    with tempfile.TemporaryDirectory(prefix="npu_shim_host_") as folder:
        hosts = of_hosts.Hosts(names, number, port, folder if number else "", OWN_INPUT in options)
        environment = {**layout.alone(os.environ), of_hosts.VARIABLE: hosts.text()}
        passed = [*engine_too, *_passed_on(given, number == 0)]
        place = "%s:%d" % (names[0], port)
        worker = workers.Worker("host %s" % hosts.name, place, ["run", *passed, *argv], environment)
        failure = workers.run([worker], _number(options.get(GRACE, str(SECONDS)), GRACE))
    return 0 if failure is None else _tell(failure)


def _tell(failure: workers.Failure) -> int:
    """Says which worker failed first; returns the exit status."""
    name = failure.worker.name
    print("npu-shim: %s (%s) failed first: %s" % (name, failure.worker.place, failure.how()), file=sys.stderr)
    for line in failure.lines:
        print("npu-shim:   [%s] %s" % (name, line), file=sys.stderr)
    return failure.status if failure.status > 0 else 128 - failure.status


def _check_script(script: str) -> None:
    """Finds now what every worker would find."""
    if script == "-":
        raise ConfigError("npu-shim launch needs a SCRIPT in a file: several workers cannot read one standard input")
    if script == "-m":
        return
    if not os.path.isfile(script):
        reason = os.strerror(errno.EISDIR if os.path.isdir(script) else errno.ENOENT)
        raise ConfigError("script '%s' cannot be read: %s" % (script, reason))
    running.require_readable(script)


def _devices(options: Mapping[str, str]) -> int | str:
    """How many devices each worker has, or "all", which the workers of a host share."""
    if running.DEVICES in options:
        return running.checked_devices(options)
    return devices.checked(os.environ.get(devices.VARIABLE) or 1, devices.VARIABLE)


def _places(options: Mapping[str, str], count: int | str) -> tuple[list[layout.Place], int]:
    """Returns the Place of each rank, of which each has so many devices, and the number of this host."""
    hosts = _hosts(options)
    if COUNT in options:
        places = layout.places(_count(options[COUNT]), hosts or [description.ONE_HOST])
    else:
        places = _places_without_count(hosts, count)
    known = list(dict.fromkeys(place.host for place in places))
    return places, _index(known, options.get(INDEX))


def _hosts(options: Mapping[str, str]) -> list[str]:
    """The names of the hosts, none where they are not given."""
    hosts = options[HOSTS].split(",") if HOSTS in options else []
    if not all(hosts):
        raise ConfigError("%s is '%s', expected %s" % (HOSTS, options[HOSTS], OPTIONS[HOSTS].expected))
    return hosts


def _index(known: Sequence[str], given: str | None) -> int:
    """This host's number among all."""
    if given is None and len(known) > 1:
        raise ConfigError("%d hosts (%s) need %s, %s" % (len(known), ",".join(known), INDEX, OPTIONS[INDEX].expected))
    index = given or "0"
    if not index.isdigit() or int(index) >= len(known):
        raise ConfigError("%s is '%s', expected a number from 0 to %d" % (INDEX, index, len(known) - 1))
    return int(index)


def _places_without_count(hosts: Sequence[str], count: int | str) -> list[layout.Place]:
    """As the rank table says, or one for each GPU, or each number of them."""
    table = rank_table.named(os.environ)
    if table is not None and not hosts:
        return layout.of_hosts(table.hosts)
    gpus = len(layout.visible_gpus(os.environ))
    if not gpus or len(hosts) > 1:
        as_one = "; or, with %s, %s N, for a script that knows of no ranks" % (HOSTS, running.DEVICES)
        raise ConfigError("npu-shim launch needs %s N, %s%s" % (COUNT, OPTIONS[COUNT].expected, as_one))
    workers_here = 1 if count == ALL else max(gpus // int(count), 1)
    return layout.places(workers_here, hosts or [description.ONE_HOST])


def _here(places: Sequence[layout.Place], index: int) -> list[layout.Place]:
    host = list(dict.fromkeys(place.host for place in places))[index]
    return [place for place in places if place.host == host]


def _gpus(places: Sequence[layout.Place], index: int, count: int | str) -> list[list[str]]:
    """The GPUs of each of this host's workers; none on a machine without."""
    gpus, wanted = layout.visible_gpus(os.environ), len(_here(places, index))
    share = max(len(gpus) // wanted, 1) if count == ALL else int(count)
    if gpus and wanted * share > len(gpus):
        words = (wanted, " with %d devices each" % share if share > 1 else "", len(gpus), layout.VISIBLE)
        raise ConfigError("%d workers%s on this host, which has %d GPUs; with %s=-1 they run on its CPUs" % words)
    return [gpus[at * share : (at + 1) * share] for at in range(wanted)] if gpus else []


def _ports(places: Sequence[layout.Place], index: int, given: str | None) -> list[int]:
    """The port of each rank."""
    if given is None and len({place.host for place in places}) == 1:
        return layout.free_ports(len(places))
    first = description.first_port(os.environ) if given is None else _number(given, PORT)
    ports = [int(first) + place.rank for place in places]
    if ports[0] not in PORTS or ports[-1] not in PORTS:
        raise ConfigError("%s: the ports %d to %d are not all below %d" % (PORT, ports[0], ports[-1], PORTS.stop))
    for place in _here(places, index):
        if not layout.is_free(ports[place.rank]):
            raise ConfigError("port %d of this host is taken; %s has others" % (ports[place.rank], PORT))
    return ports


def _check_passed_on(given: Sequence[tuple[str, str]]) -> None:
    """Finds now what every worker would find in the options of `npu-shim run`."""
    checks = {running.ENGINE: engine.checked, running.REPORT: pages.checked, running.CALIBRATE: pages.checked_steps}
    for name, word in given:
        if name in checks:
            checks[name](word, name)
    if running.DEVICES in dict(given):
        running.checked_devices(dict(given))
    running.asked_values(given)
    forced.checked_scale(dict(given).get(running.SCALE), running.SCALE)


def _passed_on(given: Sequence[tuple[str, str]], all_of_it: bool) -> list[str]:
    """The options of `npu-shim run` for one worker: for the first, all of them."""
    passed = [pair for pair in given if pair[0] in running.OPTIONS and (all_of_it or pair[0] not in OF_THE_FIRST)]
    return ["%s=%s" % pair if running.OPTIONS[pair[0]].expected else pair[0] for pair in passed]


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ConfigError("%s is '%s', expected %s, 1 or more" % (COUNT, text, OPTIONS[COUNT].expected))
    return int(text)


def _number(text: str, option: str) -> float:
    try:
        number = float(text) if option == GRACE else int(text)
    except ValueError:
        number = -1
    if not 0 <= number < float("inf"):
        raise ConfigError("%s is '%s', expected %s" % (option, text, OPTIONS[option].expected))
    return number

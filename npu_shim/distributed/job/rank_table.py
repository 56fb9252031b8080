"""The vendor's rank tables: which host and which device of it each rank of a job is on. Standard library only.

Two layouts, told apart by their first list. Version 1.0 has a `server_list`, whose devices name their ranks. The one
before has a `group_list` of instances: an instance with a `rank_id` is one rank, one without (a pod) has a rank for
each of its devices, in the order in which they are written. What else stands in it (`deploy_mode`,
`para_plane_nic_location`, `para_plane_nic_name`, `device_ip`, `board_id`, `chip_info`) is about the network between
NPUs: here the ranks meet at the address of their host. Source: HCCL's user guides of CANN 5 to 8; the tables of the
public networks.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from typing import Any, Mapping

from npu_shim.rewriter.errors import ConfigError

VARIABLE = "RANK_TABLE_FILE"
COMPLETED = "completed"  # the status of a table that its writer has finished


@dataclasses.dataclass(frozen=True)
class RankTable:
    """The host of each rank, and the number of its device there."""

    hosts: tuple[str, ...]
    devices: tuple[int, ...]


def named(environment: Mapping[str, str]) -> RankTable | None:
    """Returns the table that RANK_TABLE_FILE names, None where it names none; errors as `read`."""
    return read(environment[VARIABLE], VARIABLE) if environment.get(VARIABLE) else None


def read(path: str, told_by: str) -> RankTable:
    """Returns the table in a file.

    Args:
        path: of the file.
        told_by: the variable or the flag that names it.

    Raises:
        ConfigError: the file cannot be read, is not completed, or is no rank table.
    """
    try:
        return _read(path, told_by, os.stat(path).st_mtime_ns)
    except OSError as error:
        raise ConfigError("%s: '%s' cannot be read: %s" % (told_by, path, error.strerror)) from error


@functools.lru_cache(maxsize=1)
def _read(path: str, told_by: str, changed: int) -> RankTable:
    """As `read`, once for each state of the file: every session and collective asks."""
    where = "%s: '%s'" % (told_by, path)
    try:
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
    except ValueError as error:
        raise ConfigError("%s is not JSON: %s" % (where, error)) from error
    try:
        return _parsed(table)
    except ConfigError as error:
        raise ConfigError("%s: %s" % (where, "; ".join(error.problems))) from None


def _parsed(table: Any) -> RankTable:
    if not isinstance(table, dict) or not ("server_list" in table or "group_list" in table):
        raise ConfigError("expected a rank table, an object with a 'server_list' or a 'group_list'")
    status = table.get("status", COMPLETED)
    if status != COMPLETED:
        raise ConfigError("its status is '%s', expected '%s'" % (status, COMPLETED))
    rows = _servers(table) if "server_list" in table else _groups(table)
    if sorted(rank for rank, _, _ in rows) != list(range(len(rows))) or not rows:
        ranks = ", ".join(str(rank) for rank, _, _ in rows)
        raise ConfigError("expected the ranks 0, 1, 2, ..., each once, got %s" % (ranks or "none"))
    rows.sort()
    return RankTable(tuple(host for _, host, _ in rows), tuple(device for _, _, device in rows))


def _servers(table: Any) -> list[tuple[int, str, int]]:
    """Version 1.0 and later: (rank, host, device)."""
    return [
        (_whole(device, "rank_id"), _host(server), _whole(device, "device_id"))
        for server in _list(table, "server_list")
        for device in _list(server, "device")
    ]


def _groups(table: Any) -> list[tuple[int, str, int]]:
    """The layout before 1.0: (rank, host, device)."""
    rows: list[tuple[int, str, int]] = []
    for group in _list(table, "group_list"):
        for instance in _list(group, "instance_list"):
            devices = _list(instance, "devices")
            if "rank_id" in instance and len(devices) != 1:
                text = "the instance of rank %s has %d devices, expected one"
                raise ConfigError(text % (instance["rank_id"], len(devices)))
            for device in devices:
                rank = _whole(instance, "rank_id") if "rank_id" in instance else len(rows)
                rows.append((rank, _host(instance), _whole(device, "device_id")))
    return rows


def _host(server: Any) -> str:
    """The address of a server: later versions of the layout have it beside the server's name."""
    host = server.get("host_ip") or server.get("server_id")
    if not isinstance(host, str):
        raise ConfigError("a server has no 'server_id': %s" % json.dumps(server))
    return host


def _list(parent: Any, name: str) -> list[Any]:
    entries = parent.get(name)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError("expected a list of objects as '%s' in %s" % (name, json.dumps(parent)))
    return entries


def _whole(parent: Any, name: str) -> int:
    """A whole number, which the vendor writes as a string."""
    value = parent.get(name)
    if isinstance(value, bool) or not str(value).isdigit():
        raise ConfigError("expected a whole number as '%s' in %s" % (name, json.dumps(parent)))
    return int(value)

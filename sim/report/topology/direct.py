"""Pictures of networks whose switches hold hosts and each other: dragonfly and 3-D torus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..drawing import palette
from ..drawing.svg import element, line, text
from .sheet import LEFT, MARGIN, WIDTH, Point, Sheet, folded, gigabits, hidden

if TYPE_CHECKING:
    from ....hardware.fabrics.dragonfly import Dragonfly
    from ....hardware.fabrics.torus import Torus
    from ....hardware.topology import RegularTopology

TIMES = "\N{MULTIPLICATION SIGN}"


def draw_dragonfly(topology: RegularTopology, fly: Dragonfly, top: float, sheet: Sheet) -> float:
    """Groups side by side; local cables as arcs inside, global ones as arcs above."""
    groups = folded(fly.groups, 4)
    router_y = top + 186
    columns = sum(1.0 if group is not None else 0.3 for group in groups)
    span = (WIDTH - LEFT - MARGIN) / columns
    at: dict[int, Point] = {}
    x = LEFT
    for group in groups:
        if group is None:
            sheet.words(x + 0.15 * span, router_y - 10, "· · ·", 15)
            sheet.words(x + 0.15 * span, router_y + 8, f"{hidden(fly.groups, groups)} more groups")
            x += 0.3 * span
            continue
        at |= _group(fly, group, (x + 6, router_y, span - 12), sheet)
        x += span
    _dragonfly_cables(fly, at, sheet)
    net = topology.cluster.interconnect
    rate = gigabits(net.link_bytes_per_s)
    sheet.tier(top + 30, "global cables", f"{fly.trunk} {TIMES} {rate}" if fly.trunk else "none: one group")
    if fly.trunk:
        sheet.rate(top + 60, ("between each two groups",))
    sheet.tier(router_y - 58, "local cables", f"{rate}")
    sheet.rate(router_y - 28, ("each two routers",))
    sheet.tier(router_y + 8, "routers", f"{fly.groups} group{'s' * (fly.groups > 1)} {TIMES} {fly.routers}")
    sheet.tier(router_y + 78, "hosts", f"{fly.nodes:,} {TIMES} {topology.cluster.gpus_per_node} GPUs")
    sheet.rate(router_y + 108, (f"{net.links_per_host} {TIMES} {rate} each",))
    return router_y + 62 + 26 * min(2, fly.nodes_per_router) + 22


def _group(fly: Dragonfly, group: int, place: tuple[float, float, float], sheet: Sheet) -> dict[int, Point]:
    """The routers of a group in a row, their hosts under them."""
    left, y, width = place
    sheet.frame(left, y - 84, width, 162 + 26 * min(2, fly.nodes_per_router), f"group {group}")
    shown = folded(fly.routers, max(2, min(8, int(width / 40) - 1)))
    slot = (width - 12) / len(shown)
    at: dict[int, Point] = {}
    for column, inside in enumerate(shown):
        x = left + 6 + slot * (column + 0.5)
        if inside is None:
            sheet.words(x, y + 8, "· · ·", 12)
            sheet.words(x, y + 22, f"{hidden(fly.routers, shown)} more", 9)
            continue
        router = group * fly.routers + inside
        at[router] = (x, y)
        sheet.box(x, y, min(slot - 4, 56), 22, str(router), "router", f"router {router}")
        first = router * fly.nodes_per_router
        hosts = [node for node in range(first, first + fly.nodes_per_router) if node < fly.nodes]
        for row, node in enumerate(hosts[:2]):
            host_y = y + 50 + 26 * row
            if row == 0:
                ends = (f"nic {node}.0", f"router {router}")
                sheet.wire((x, y + 22), (x, host_y), "nic", ends)
            wide = slot - 4 > 48
            name = f"host {node}"
            sheet.box(x, host_y, min(slot - 4, 60), 20, name if wide else str(node), "host", name)
        if len(hosts) > 2:
            sheet.words(x, y + 112, f"+ {len(hosts) - 2}", 9)
    return at


def _dragonfly_cables(fly: Dragonfly, at: dict[int, Point], sheet: Sheet) -> None:
    drawn = sorted(at)
    for a in drawn:
        for b in drawn:
            if a < b and a // fly.routers == b // fly.routers:
                (x, y), (to_x, to_y) = at[a], at[b]
                bow = 10 + min(116.0, 0.34 * abs(to_x - x))
                sheet.wire((x, y), (to_x, to_y), "local", (f"router {a}", f"router {b}"), bow=bow)
    pairs = set()
    per_group = (fly.groups - 1) * fly.trunk
    for group in sorted({router // fly.routers for router in drawn}):
        for local in range(group * per_group, (group + 1) * per_group):
            (_, a), (_, b) = fly.global_ends(local)  # type: ignore[misc]
            if a < b and a in at and b in at:
                pairs.add((a, b))
    for a, b in sorted(pairs):
        (x, y), (to_x, to_y) = at[a], at[b]
        bow = 130 + 0.2 * abs(to_x - x)
        sheet.wire((x, y), (to_x, to_y), "global", (f"router {a}", f"router {b}"), bow=bow)


def draw_torus(topology: RegularTopology, torus: Torus, top: float, sheet: Sheet) -> float:
    """A lattice in oblique view; stubs at its faces are the cables that lead around."""
    shown = [folded(length, 4) for length in torus.size]
    nx, ny, nz = (len(axis) for axis in shown)
    room = WIDTH - LEFT - MARGIN - 120
    step_x = min(150.0, room / (nx + 0.42 * nz))
    depth = (step_x * 0.40, step_x * 0.30)
    step_y = min(100.0, step_x)
    height = step_y * (ny - 1) + depth[1] * (nz - 1)
    wide = step_x * (nx - 1) + depth[0] * (nz - 1)
    left, bottom = LEFT + 50 + (room - wide) / 2, top + 70 + height

    def place(i: int, j: int, k: int) -> Point:
        return left + i * step_x + k * depth[0], bottom - j * step_y - k * depth[1]

    for k in reversed(range(nz)):
        for j in range(ny):
            for i in range(nx):
                _torus_host(torus, shown, (i, j, k), place, sheet)
    net = topology.cluster.interconnect
    side = net.link_bytes_per_s * torus.links_per_host / torus.oversubscription
    size = f" {TIMES} ".join(map(str, torus.size))
    sheet.tier(top + 40, "hosts", f"{size} = {torus.nodes:,}")
    per_host = f"{net.links_per_host} {TIMES} {gigabits(net.link_bytes_per_s)} per host"
    sheet.rate(top + 72, (f"{topology.cluster.gpus_per_node} GPUs and a switch each", per_host))
    sheet.tier(top + 128, "to each neighbour", gigabits(side))
    sheet.rate(top + 160, (f"{torus.cables} {TIMES} {gigabits(side / torus.cables)}", "stubs lead around"))
    if any(None in axis for axis in shown):
        sheet.rate(top + 190, ("dots stand for hosts left out",))
    _axes(top + 230, sheet)
    return max(bottom + 56, top + 300)


def _axes(y: float, sheet: Sheet) -> None:
    """Which way x, y and z run."""
    x = MARGIN + 20
    for name, dx, dy in (("x", 40, 0), ("y", 0, -36), ("z", 22, -16)):
        sheet.boxes.append(line(x, y + 30, x + dx, y + 30 + dy, stroke=palette.FAINT_INK, stroke_width=1.2))
        sheet.words(x + dx * 1.18 + (0 if dx else -1), y + 33 + dy * 1.2, name, 11)


def _torus_host(
    torus: Torus, shown: list[list[int | None]], index: tuple[int, int, int], place: object, sheet: Sheet
) -> None:
    """One host, its cables to the next along each axis, and stubs at the faces."""
    at = place(*index)  # type: ignore[operator]
    numbers = [axis[i] for axis, i in zip(shown, index, strict=True)]
    if None in numbers:
        if numbers.count(None) == 1:
            sheet.words(at[0], at[1] + 4, "·", 16)
        return
    node = sum(n * torus.stride(axis) for axis, n in enumerate(numbers) if n is not None)
    for axis, length in enumerate(torus.size):
        if length == 1:
            continue
        for way in (1, -1):
            other = torus.neighbour(node, axis, way)
            ends = (f"router {node}", f"router {other}")
            near = list(index)
            near[axis] += way
            inside = 0 <= near[axis] < len(shown[axis])
            if inside and shown[axis][near[axis]] is not None:
                if way > 0:
                    sheet.wire(at, place(*near), "torus", ends)  # type: ignore[operator]
            elif inside or length > 2:
                far = place(*near)  # type: ignore[operator]
                part = 0.33
                end = (at[0] + part * (far[0] - at[0]), at[1] + part * (far[1] - at[1]))
                sheet.wire(at, end, "torus", ends)
    radius = 12.0
    title = element("title", f"host {node}")
    colour = palette.SINGLE["F"]
    ring: dict[str, float | str] = {"fill": colour, "stroke": "#ffffff", "stroke_width": 1.5}
    sheet.boxes.append(element("circle", title, cx=at[0], cy=at[1], r=radius, **ring))
    size = 9.0 if len(str(node)) < 4 else 7.0
    ink: dict[str, float | str] = {"fill": palette.ink_on(colour), "text_anchor": "middle"}
    sheet.boxes.append(text(at[0], at[1] + 0.36 * size, str(node), font_size=size, **ink))

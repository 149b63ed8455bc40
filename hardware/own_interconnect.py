"""A network between hosts that a user describes, or one of the catalogue with a few figures changed.

Knows the fields and what is carried from the nearest network of the catalogue where they are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from .carried import CarriedFigure
from .fields import Count, Latency, OneOf, PositiveShare, Rate, Size, SwitchPorts, Text, number
from .interconnect import INTERCONNECTS, Interconnect, get_interconnect, interconnect_called
from .quantities import shown_quantity


def network_kinds() -> tuple[str, ...]:
    """Kinds of networks between hosts that the catalogue has."""
    found = (one.kind for one in INTERCONNECTS.records().values() if one.connects_hosts)
    return tuple(dict.fromkeys(found))


def _known_key(value: Any) -> Any:
    return interconnect_called(value) if isinstance(value, str) else value


class OwnInterconnect(BaseModel):
    """A network between hosts. What it leaves out is that of the network that it `extends`, or of the nearest
    of its kind; predictions say so, and are wider."""

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always", defer_build=True)

    name: Text = Field(default="", description="how results call it")
    extends: Annotated[Text, BeforeValidator(_known_key, json_schema_input_type=str)] | None = Field(
        default=None, description="network of the catalogue that it is like", examples=["ib-ndr400-x8"]
    )
    kind: Annotated[str, OneOf(network_kinds)] | None = Field(
        default=None, description="default: that of `extends`, else `roce`"
    )
    rate: Rate | None = Field(default=None, description="of one NIC in one direction", examples=["200 Gb/s"])
    nics_per_node: Count | None = Field(default=None, description="NICs of a host", examples=[4])
    latency: Latency | None = Field(default=None, description="one way through one switch", examples=["3 us"])
    switch_latency: Latency | None = Field(default=None, description="what each further switch adds")
    efficiency: PositiveShare | None = Field(
        default=None, description="share of the rate that large messages reach"
    )
    switch_ports: SwitchPorts | None = Field(default=None, description="ports of a switch at that rate")
    eager: Size | None = Field(
        default=None,
        description="largest message that its receiver does not have to fetch",
        examples=["4 KiB"],
    )
    rendezvous: Latency | None = Field(
        default=None, description="what fetching a larger one adds to each hop", examples=["5 us"]
    )
    scale: Annotated[float, number(ge=1e-3, le=1000)] = Field(
        default=1.0, description="times the rate of every NIC and of the links above it"
    )

    @model_validator(mode="after")
    def _has_rates(self) -> OwnInterconnect:
        if self.extends is None and (self.rate is None or self.nics_per_node is None):
            raise ValueError(
                "say which network it extends, as in extends: ib-ndr400-x8, or give rate and nics_per_node"
            )
        fetched = (self.eager is None) != (self.rendezvous is None)
        if fetched and not _relative_of(self).rendezvous_s:
            raise ValueError("give both eager and rendezvous: its relative has its receivers fetch nothing")
        return self

    @property
    def called(self) -> str:
        """The name by which results call it."""
        return self.name or f"{self.extends or self.kind or 'roce'} (changed)"


_FIGURES = {
    "rate": ("link_bytes_per_s", "bytes_per_s"),
    "nics_per_node": ("links_per_host", None),
    "latency": ("latency_s", "seconds"),
    "switch_latency": ("switch_latency_s", "seconds"),
    "efficiency": ("efficiency", None),
    "switch_ports": ("switch_ports", None),
    "eager": ("eager_bytes", "bytes"),
    "rendezvous": ("rendezvous_s", "seconds"),
}
_FETCHED = ("eager", "rendezvous")
"""Constants that are not carried from a relative whose receivers do not fetch messages."""


@lru_cache(maxsize=256)
def interconnect_from(own: OwnInterconnect) -> Interconnect:
    """The network of a description, complete, with what it carries from its relative."""
    relative = _relative_of(own)
    given = {
        attribute: getattr(own, field)
        for field, (attribute, _) in _FIGURES.items()
        if getattr(own, field) is not None
    }
    changed = replace(
        relative,
        name=own.called,
        kind=own.kind or relative.kind,  # type: ignore[arg-type]  # one of network_kinds()
        sources={"stated": "the scenario", "carried": f"as {relative.name}"},
        carried=tuple(_carried(own, relative)),
        own=True,
        **given,
    )
    return replace(changed, link_bytes_per_s=own.scale * changed.link_bytes_per_s)


def _relative_of(own: OwnInterconnect) -> Interconnect:
    if own.extends is not None:
        return get_interconnect(own.extends)
    known = [one for one in INTERCONNECTS.records().values() if one.kind == (own.kind or "roce")]
    assert own.rate is not None  # the description is checked
    rate = own.rate
    return min(known, key=lambda one: abs(math.log(rate / one.link_bytes_per_s)))


def _carried(own: OwnInterconnect, relative: Interconnect) -> Iterator[CarriedFigure]:
    for field, (attribute, dimension) in _FIGURES.items():
        if getattr(own, field) is None and (field not in _FETCHED or relative.rendezvous_s):
            value = getattr(relative, attribute)
            text = shown_quantity(value, dimension) if dimension else str(value)  # type: ignore[arg-type]
            yield CarriedFigure(field=field, value=text, relative=relative.name, moves="network", sigma=0.0)

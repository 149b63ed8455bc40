"""Kinds of links, for reports and for the laws of routes. ``hardware/link.py`` says what each is."""

from __future__ import annotations

from typing import Literal

LinkKind = Literal["nvlink", "pcie", "nic", "uplink", "core", "local", "global", "torus", "cable"]

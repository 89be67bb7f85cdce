"""List prices of sizes, to compare a retiring size with today's. What nodes cost comes from the user's catalog.yaml.

Azure's pay-as-you-go prices of an hour of a Linux node in East US (the G series: East US 2; the L series: West US 2) in
USD, from skypilot-org/skypilot-catalog, `catalogs/azure/instances.csv` of 2022; A8 and A10, which it lacks: the prices
of microsoft/CromwellOnAzure, `DefaultVmPrices.json` of 2019. Within a series, Azure's prices grow with the cores.
"""

from __future__ import annotations

import re

from batchtrain.catalog.sizes import VmSize, find, key

WHERE = "list prices of East US in 2022"
LISTED: dict[str, float] = {
    "A0": 0.02, "A1": 0.06, "A5": 0.25, "A1_v2": 0.043, "A2m_v2": 0.119, "A8": 0.975, "A10": 0.78,
    "B1ls": 0.0052, "B1s": 0.0104, "B1ms": 0.0207, "B2s": 0.0416, "B2ms": 0.0832,
    "D1": 0.077, "D11": 0.193, "D1_v2": 0.073, "D11_v2": 0.185, "D2_v3": 0.096, "D2s_v3": 0.096, "D2s_v5": 0.096,
    "E2_v3": 0.126, "E2s_v3": 0.126, "E2s_v5": 0.126, "F1": 0.0497, "F1s": 0.0497, "F2s_v2": 0.0846,
    "G1": 0.55, "GS1": 0.55, "L4s": 0.312, "L8s_v2": 0.624,
    "H8": 0.904, "H8m": 1.211, "H16r": 1.988, "H16mr": 2.664, "HB60rs": 2.28, "HC44rs": 3.168, "HB120rs_v2": 3.6,
    "HB120rs_v3": 3.6, "NP10s": 1.65,
    "NC6": 0.9, "NC24r": 3.96, "NC6s_v2": 2.07, "NC24rs_v2": 9.108, "NC6s_v3": 3.06, "NC24rs_v3": 13.46,
    "ND6s": 2.07, "ND24rs": 9.108, "NV6": 1.14, "NV12s_v3": 1.14, "NV4as_v4": 0.233,
    "NC4as_T4_v3": 0.526, "NC8as_T4_v3": 0.752, "NC16as_T4_v3": 1.204, "NC64as_T4_v3": 4.352,
    "NC24ads_A100_v4": 3.673, "ND40rs_v2": 22.032, "ND96asr_v4": 27.197,
}  # fmt: skip
ALIKE = {"DS": "D", "DSv2": "Dv2"}
"""Series that Azure sells at the prices of another."""


def list_price(size: VmSize) -> float | None:
    """The list price of a size: its own, or by cores that of the size of its series that is most like it. Returns None
    if the table has none. Fewer active cores cost as much as all of them; promotions had prices of their own."""
    full = find(re.sub(r"-\d+", "", size.name)) or size
    if exact := _BY_KEY.get(key(full.name)):
        return exact[1]
    family = ALIKE.get(full.family, full.family)
    siblings = [
        (abs(other.memory_gib / other.cores - full.memory_gib / full.cores), price / other.cores)
        for other, price in _BY_KEY.values()
        if (other.family, other.rdma) == (family, full.rdma)
    ]
    return None if "Promo" in full.name or not siblings else round(min(siblings)[1] * full.cores, 4)


_BY_KEY = {key(name): (size, price) for name, price in LISTED.items() if (size := find(name))}

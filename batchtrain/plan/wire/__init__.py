"""Azure Batch's request bodies as frozen types: the vendor's names in our spelling, the vendor's on the wire."""

from batchtrain.plan.wire.bodies import *
from batchtrain.plan.wire.later import *

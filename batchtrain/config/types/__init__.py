"""The configuration language as frozen types: names, defaults, bounds, and one sentence per property. No reading, no
rules.

The vocabulary is Batch Shipyard's, so that its files work unchanged. `schemas/` and `docs/reference/config.md` are
generated from here. YAML scalars arrive as the text in the file and are converted by the field's type, so
`sku: 7.10` stays `7.10` and an environment variable may be `true` or `007`.
"""

from batchtrain.config.types.base import *
from batchtrain.config.types.credentials import *
from batchtrain.config.types.history import *
from batchtrain.config.types.jobs import *
from batchtrain.config.types.pool import *
from batchtrain.config.types.recipe import *
from batchtrain.config.types.secret import *
from batchtrain.config.types.settings import *

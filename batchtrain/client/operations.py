"""What a client does in one Batch account."""

from __future__ import annotations

from batchtrain.client.jobs import Jobs
from batchtrain.client.pools import Pools
from batchtrain.client.session import Session
from batchtrain.service.connect import Account


class Operations(Session):
    """The pools and jobs of one Batch account."""

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self.pools, self.jobs = Pools(self), Jobs(self)

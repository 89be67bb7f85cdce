"""Storage."""

from __future__ import annotations

from batchtrain.verify.probe import Area, Probe, by_hand
from batchtrain.verify.reasons import NO_ENTRA

PROBES = (
    Probe("delegated-keys",
        "Without a key, an Entra token with the role Storage Blob Data Contributor can read and write, and a user "
        "delegation key can sign links of at most 7 days", "documentation",
        "`batchtrain data ingress` and `batchtrain jobs add` with an account in credentials.yaml that has no "
        "`account_key`",
        "service/delegated", lambda value: value["status"] == 200 and value["text"] == "probe",
        right={"status": 200, "text": "probe"}, wrong={"status": 200, "text": ""}, unread={"text": "probe"},
        code="batchtrain/storage/blob.py", not_local=NO_ENTRA),
    by_hand("shipyard-secret", "Batch Shipyard's `keyvault add` stored a credentials file as zlib in base64",
        "its source", "`batchtrain pool list` with `keyvault.credentials_secret_id` of such a secret",
        code="batchtrain/service/vault.py", why="only Batch Shipyard writes such a secret", not_local=NO_ENTRA),
)  # fmt: skip

AREA = Area(
    "storage",
    "Storage",
    "Tested: uploads, downloads, listings, and links signed with the account key, against Azurite 3.37.",
    PROBES,
)

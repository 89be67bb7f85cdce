"""Sign-in, quotas and sizes."""

from __future__ import annotations

from typing import Any

from batchtrain.verify.probe import RTX_SHARE, Area, Probe, by_hand
from batchtrain.verify.readings import (
    both,
    gpu_share,
    has_no_role,
    location_is_a_kind,
    no_token,
    other_cloud,
    related_sizes_agree,
    role_is_enough,
    some,
)
from batchtrain.verify.reasons import NO_BILL, NO_ENTRA, NO_GPU, NO_MANAGEMENT, NO_PRICES, NO_STORAGE
from batchtrain.verify.recorded_answers import REFUSED, identified, response, role

PROBES = (
    Probe("token-audience",
        "Tokens for Batch have the audience `https://batch.core.windows.net/` with the final slash, so the scope ends "
        "in `//.default`", "azure-sdk-for-net #8026; the SDK's own default",
        "`az account get-access-token --resource https://batch.core.windows.net/`, then `batchtrain pool list` "
        "without a key",
        "service/token", lambda value: value["status"] == 200,
        right=response(200), wrong=response(401, "AuthenticationFailed", authenticate=True), unread={"code": ""},
        code="batchtrain/service/entra.py"),
    Probe("other-clouds",
        "In US Government and China the audience is `https://batch.core.usgovcloudapi.net/` and "
        "`https://batch.chinacloudapi.cn/`", "azure-cli's table of clouds",
        "the commands of `token-audience` with an account there",
        "service/cloud", other_cloud,
        right={"cloud": "China", "status": 200}, wrong={"cloud": "China", "status": 401},
        unread={"cloud": "public", "status": 200}, code="batchtrain/service/entra.py", not_local=NO_ENTRA),
    Probe("no-token", "Batch answers 401 with `WWW-Authenticate` to a token that is none",
        "documentation; Batch Explorer #2260",
        "`curl -i -H 'Authorization: Bearer x' 'https://NAME.REGION.batch.azure.com/pools?api-version=2025-06-01'`; "
        "`batchtrain pool list` with the role Reader alone",
        "service/unsigned", lambda value: value["status"] == 401 and value["headers"]["WWW-Authenticate"] is True,
        right=response(401, "AuthenticationFailed", authenticate=True), wrong=REFUSED, unread={"status": 401},
        code="batchtrain/service/faults.py batchtrain/service/retry.py"),
    Probe("signature-date",
        "A signature whose date is more than 15 minutes off is refused with 403 `AuthenticationFailed` by Batch, also "
        "if the date is in the future", "documentation; azure-sdk-for-js #5433",
        "`faketime '20 minutes ago' batchtrain pool list` with a key, and with `faketime '+20 minutes'`",
        "service/dated",
        lambda value: both(value, lambda answer: answer["status"] == 403 and answer["code"] == "AuthenticationFailed"),
        right=[REFUSED, REFUSED], wrong=[REFUSED, response(200)], unread=[],
        code="batchtrain/service/clock_difference.py", shape=list[dict[str, Any]]),
    by_hand("token-times",
        "The times of a token (`nbf`, `iat`, `exp`) may be 5 minutes off, and the answer is then 401",
        "default of Microsoft.IdentityModel",
        'a kept token in the minutes after its `exp`: `curl -i -H "Authorization: Bearer $TOKEN" '
        "'https://NAME.REGION.batch.azure.com/pools?api-version=2025-06-01'`", code="batchtrain/service/entra.py",
        why="a token lives for an hour or longer", not_local=NO_ENTRA),
    Probe("date-of-refusals",
        "A refusal of Batch has a `Date`, from which batchtrain finds how far this machine's clock is off",
        "HTTP (RFC 9110, 6.6.1)", "the headers of the refusals above",
        "service/not-found", lambda value: value["headers"]["Date"] is True,
        right=response(404, "PoolNotFound"), wrong=response(404, "PoolNotFound", date=False), unread={"status": 404},
        code="batchtrain/service/clock_difference.py batchtrain/service/read.py"),
    Probe("shared-key-refusals",
        "A shared key is refused with 400 or 403 for a subnet, a public IP address or an image of any gallery",
        "aztk #240; azure-docs #51092; documentation of public IP addresses and galleries",
        "`az batch pool create --json-file pool.json` with `AZURE_BATCH_ACCESS_KEY`, once with each",
        "service/linked",
        lambda value: all(answer["status"] in (400, 403) for answer in some(value, "answer")) and len(value) == 3,
        right=[response(400, "InvalidPropertyValue"), REFUSED, REFUSED],
        wrong=[response(400, "InvalidPropertyValue"), response(201), REFUSED], unread=[],
        code="batchtrain/service/faults.py batchtrain/plan/network.py", shape=list[dict[str, Any]]),
    Probe("roles", "The roles Contributor and Azure Batch Data Contributor allow everything that the commands do",
        "documentation", "`batchtrain doctor` and `batchtrain run`, signed in with each",
        "service/roles", role_is_enough,
        right=role(201), wrong=role(403), unread=role(201, denied=()), code="batchtrain/diagnosis/doctor.py",
        not_local=NO_ENTRA),
    by_hand("device-code", "A sign-in by device code is kept between commands if the machine has a key ring",
        "azure-identity's documentation", "`batchtrain pool list` twice with `aad: {user: …}`",
        code="batchtrain/service/entra.py", why="a user must type the code", not_local=NO_ENTRA),
    Probe("account-by-endpoint",
        "An account is found by its `accountEndpoint` in `GET "
        "/subscriptions/ID/providers/Microsoft.Batch/batchAccounts` (2025-06-01), with its quotas and "
        "`allowedAuthenticationModes`", "azure-rest-api-specs", "`batchtrain doctor` beside `az batch account show`",
        "service/account", lambda value: bool(value["sign_ins"]) and value["pools"] > 0,
        right={"sign_ins": ["SharedKey", "AAD"], "pools": 20}, wrong={"sign_ins": [], "pools": 20}, unread=None,
        code="batchtrain/service/arm.py batchtrain/diagnosis/doctor.py", not_local=NO_MANAGEMENT),
    Probe("batch-sizes",
        "`GET …/Microsoft.Batch/locations/REGION/virtualMachineSkus` lists the sizes that Batch offers, with "
        "`vCPUsAvailable`, `MemoryGB`, `GPUs`, `RdmaEnabled` and the family, named as in the quotas of the account",
        "azure-rest-api-specs; azure-cli",
        "`az batch location list-skus -l REGION -o json`; `batchtrain catalog refresh`",
        "service/sold",
        lambda value: value["batch"] > 0 and value["whole"] == value["batch"] and bool(value["families"]),
        right={"batch": 400, "whole": 400, "families": ["standardDSv5Family"]},
        wrong={"batch": 400, "whole": 0, "families": []}, unread={"whole": 400}, code="batchtrain/service/arm.py",
        not_local=NO_MANAGEMENT),
    Probe("retail-prices",
        "The Retail Prices API answers a filter of `serviceName`, `armRegionName` and `priceType` with pages of "
        "`Items` and `NextPageLink`; the `skuName` of spot prices ends with `Spot`, and the `productName` of Windows "
        "prices contains `Windows`", "Microsoft Learn, Azure Retail Prices overview",
        "`batchtrain catalog refresh --prices --location westeurope` beside the pricing calculator",
        "service/prices", lambda value: value["dedicated"] > 0 and value["spot"] > 0,
        right={"dedicated": 900, "spot": 800}, wrong={"dedicated": 900, "spot": 0}, unread={},
        code="batchtrain/service/prices.py", shape=dict[str, int], not_local=NO_PRICES),
    by_hand("spot-bill", "Batch bills a spot node like a spot VM of the same size", "memory",
        "the invoice of a pool with spot nodes", code="batchtrain/catalog/prices.py", why="the bill comes a day later",
        not_local=NO_BILL),
    Probe("blocked-sizes",
        "A size that the subscription may not use has a restriction of type `Location` in `GET "
        "…/Microsoft.Compute/skus`", "documentation", "`az vm list-skus -l REGION --all -o json`",
        "service/sold", location_is_a_kind,
        right={"kinds": ["Location", "Zone"]}, wrong={"kinds": ["Region"]}, unread={"kinds": ["Zone"]},
        code="batchtrain/service/arm.py", not_local=NO_MANAGEMENT),
    Probe("pool-identity", "`PATCH …/batchAccounts/NAME/pools/ID` with `identity` alone gives a pool its identities",
        "documentation (managed-identity-pools)",
        "`az rest --method patch --url …/pools/ID?api-version=2025-06-01 --body '{\"identity\": …}'`",
        "service/identified", lambda value: value["expected"] in value["identities"],
        right=identified(), wrong=identified(identities=[]), unread={"identities": []},
        code="batchtrain/client/identities.py", not_local=NO_MANAGEMENT),
    Probe("identity-of-nodes", "Nodes that exist do not get the identities that their pool gets later",
        "documentation (managed-identity-pools)",
        "as above, and `curl -f` of the Instance Metadata Service with `mi_res_id` on a node: exit code 22",
        "service/identified", no_token,
        right=identified(), wrong=identified(exit=0), unread=identified(exit=7), code="batchtrain/client/identities.py",
        not_local=NO_MANAGEMENT),
    Probe("vault-secret", "`GET https://NAME.vault.azure.net/secrets/KEY?api-version=7.4` returns `value`",
        "Key Vault's REST reference",
        "a `credentials.yaml` with `account_key_keyvault_secret_id`, and `batchtrain pool list`",
        "service/vault", bool,
        right=True, wrong=False, unread={"unread": "UsageError"}, code="batchtrain/service/vault.py", shape=bool,
        not_local=NO_ENTRA),
    Probe("related-sizes",
        "The sizes of `catalog sizes` with the note `without a size page of Azure` have the same figures as their "
        "related sizes", "price list; Kubernetes service's tables", "`az vm list-skus --size ND96is --all -o json`",
        "service/related", related_sizes_agree,
        right={"sold": 12, "different": []}, wrong={"sold": 12, "different": ["Standard_ND96is_H100_v5"]},
        unread={"sold": 0, "different": []}, code="batchtrain/catalog/sizes.py", not_local=NO_MANAGEMENT),
    Probe("shared-gpus", "A size with 32 cores has a quarter of an RTX PRO 6000, and one with 64 cores a half",
        "prices", "`nvidia-smi` on `Standard_NC32lds_xl_RTXPRO6000BSE_v6`",
        "host/nodes/gpu_memory", gpu_share,
        right={"mib": [24467], "expected_gib": 24}, wrong={"mib": [97887], "expected_gib": 24},
        unread={"mib": [], "expected_gib": 24}, code="batchtrain/catalog/sizes.py", needs=RTX_SHARE, not_local=NO_GPU),
    Probe("no-role", "Batch answers 403 `AuthorizationFailure` to a token without the role",
        "documentation; Batch Explorer #2260", "`batchtrain verify` signed in with the role Reader alone",
        "service/cloud", has_no_role,
        right={"status": 403, "code": "AuthorizationFailure"}, wrong={"status": 401, "code": "AuthenticationFailed"},
        unread={"status": 200, "code": ""}, code="batchtrain/service/faults.py", not_local=NO_ENTRA),
    Probe("other-refusals", "Storage, Azure Resource Manager and Entra ID send a `Date` with every refusal",
        "HTTP (RFC 9110, 6.6.1)", "`curl -i` with a wrong key or token",
        "service/dates", lambda value: all(row["status"] >= 400 and row["date"] is True for row in some(value, "row")),
        right=[{"status": 400, "date": True}, {"status": 401, "date": True}],
        wrong=[{"status": 400, "date": True}, {"status": 401, "date": False}], unread=[],
        code="batchtrain/service/clock_difference.py", shape=list[dict[str, Any]], not_local=NO_ENTRA),
    Probe("storage-date", "Storage refuses a signature that is more than 15 minutes off as Batch does", "documentation",
        "`faketime '20 minutes ago' batchtrain data ingress`",
        "service/storage-date", lambda value: value == "AuthenticationFailed",
        right="AuthenticationFailed", wrong="", unread={"unread": "no account"},
        code="batchtrain/service/clock_difference.py batchtrain/storage/blob_requests.py", shape=str,
        not_local=NO_STORAGE),
)  # fmt: skip

AREA = Area(
    "accounts",
    "Sign-in, quotas and sizes",
    (
        "Tested: token sign-in over https against the emulator, with a replacement for Entra ID that answers the real"
        " `azure-identity`; Azure Resource Manager and Key Vault against documents in the form of their "
        "specifications."
    ),
    PROBES,
)

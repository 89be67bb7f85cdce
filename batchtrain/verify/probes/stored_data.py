"""Storage."""

from __future__ import annotations

from batchtrain.verify.probe import Area, Probe, by_hand
from batchtrain.verify.readings import uploaded
from batchtrain.verify.reasons import NO_ENTRA, NO_UPLOADS

PROBES = (
    Probe("delegated-keys",
        "Without a key, an Entra token with the role Storage Blob Data Contributor can read and write, and a user "
        "delegation key can sign links of at most 7 days", "documentation",
        "`batchtrain data ingress` and `batchtrain jobs add` with an account in credentials.yaml that has no "
        "`account_key`",
        "service/delegated", lambda value: value["status"] == 200 and value["text"] == "probe",
        right={"status": 200, "text": "probe"}, wrong={"status": 200, "text": ""}, unread={"text": "probe"},
        code="batchtrain/storage/blob.py", not_local=NO_ENTRA),
    Probe("hidden-uploads",
        "`*` and `**` of a `filePattern` match no name that begins with a dot, and `.*` matches those; so a detached "
        "run uploads them by patterns of their own", "none; tested with the emulator, which does so",
        "a task that writes `.dot` and `dir/plain`, with `output_data` that includes `**/*`",
        "service/uploads",
        lambda value: not any("/." in f"/{name}" for name in uploaded(value["plain"])) and ".dot" in value["hidden"],
        right={"plain": ["dir/plain", "plain"], "hidden": [".dot", "dir/.dot"]},
        wrong={"plain": [".dot", "dir/.dot", "dir/plain", "plain"], "hidden": [".dot", "dir/.dot"]},
        unread={"plain": ["dir/plain"]}, code="batchtrain/plan/outputs.py batchtrain/emulator/machine/output_files.py",
        shape=dict[str, list[str]], not_local=NO_UPLOADS),
    Probe("linked-uploads",
        "An upload follows links: what a link to a file or to a directory leads to is uploaded under the name of the "
        "link", "none; tested with the emulator, which does so",
        "a task with `ln -s dir/plain link; ln -s dir folder`, with `output_data` that includes `**/*`",
        "service/uploads", lambda value: {"link", "folder/plain"} <= set(uploaded(value["plain"])),
        right={"plain": ["dir/plain", "folder/plain", "link"], "hidden": []},
        wrong={"plain": ["dir/plain"], "hidden": []}, unread={"plain": ["link", "folder/plain"]},
        code="batchtrain/plan/outputs.py batchtrain/runtime/before_upload.sh", shape=dict[str, list[str]],
        not_local=NO_UPLOADS),
    by_hand("stopped-uploads",
        "The output files of a task whose job is terminated or reaches its wall clock are uploaded before the job is "
        "`completed`, and its automatic pool is deleted", "memory of the word `taskcompletion`: after the process "
        "exits, whatever its exit code", "`batchtrain run SCRIPT --detach`, then `batchtrain runs stop RUN` and "
        "`batchtrain runs fetch RUN`: the files that the script wrote are here",
        code="batchtrain/client/account_runs.py batchtrain/emulator/endings.py",
        why="the job of the probes is never terminated while a task runs", not_local=NO_UPLOADS),
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

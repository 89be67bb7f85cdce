"""credentials.yaml as types: accounts and their secrets, which are never shown."""

from typing import Annotated

from batchtrain.config.types.base import IGNORED, Block, Text, says
from batchtrain.config.types.secret import Secret

SIGN_IN = "batchtrain: sign-in with Microsoft Entra ID"
VAULT = "batchtrain: read from Key Vault when the service is needed"
LOOK_UPS = "batchtrain: look-ups through Azure Resource Manager"
REGISTRIES = "pool.*.containerConfiguration.containerRegistries"

# Tables of properties: the formatter would spread a row over up to nine lines.
# fmt: off


class TokenCache(Block, frozen=True, kw_only=True):
    enabled: Annotated[bool, says("Keep the sign-in between commands.", SIGN_IN)] = True
    filename: Annotated[str | None, says("Name of the cache.", SIGN_IN)] = None


class Aad(Block, frozen=True, kw_only=True):
    """Sign-in with Microsoft Entra ID. Default: the environment, a managed identity, or `az login`."""

    authority_url: Annotated[str | None, says(
        "Where to sign in. Default: the public cloud.", SIGN_IN, example="https://login.microsoftonline.com")] = None
    directory_id: Annotated[str | None, says("Tenant id.", SIGN_IN)] = None
    application_id: Annotated[str | None, says(
        "Client id of a service principal or a managed identity.", SIGN_IN)] = None
    auth_key: Annotated[Secret | None, says("Secret of the service principal.", SIGN_IN)] = None
    rsa_private_key_pem: Annotated[str | None, says(
        "Path of the service principal's private key with its certificate, PEM.", SIGN_IN)] = None
    x509_cert_sha1_thumbprint: Annotated[str | None, says(
        "Thumbprint of the certificate. Today it is read from the file.", SIGN_IN)] = None
    user: Annotated[str | None, says("Sign-in name of a user, who signs in with a device code.", SIGN_IN)] = None
    password: Annotated[Secret | None, says(
        "Password of the user. Ignored: Entra ID refuses it if MFA is required.", SIGN_IN)] = None
    endpoint: Annotated[str | None, says("URL of the service in another cloud.", SIGN_IN)] = None
    token_cache: Annotated[TokenCache, says("Cache of the sign-in.")] = TokenCache()


class ApplicationInsights(Block, frozen=True, kw_only=True):
    application_id: Annotated[str | None, says("Id of the resource.", IGNORED)] = None
    instrumentation_key: Annotated[Secret | None, says("Its key.", IGNORED)] = None


class BatchCredentials(Block, frozen=True, kw_only=True):
    account_service_url: Annotated[str | None, says(
        "URL of the Batch account.", "batchtrain: endpoint", example="https://NAME.REGION.batch.azure.com")] = None
    account: Annotated[str | None, says(
        "Name of the account. Default: the one in the URL.", "batchtrain: sign-in with the key")] = None
    account_key: Annotated[Secret | None, says(
        "Shared key. Without it, batchtrain signs in by Microsoft Entra ID.",
        "batchtrain: sign-in with the key")] = None
    account_key_keyvault_secret_id: Annotated[str | None, says("Key Vault secret that holds the key.", VAULT)] = None
    resource_group: Annotated[str | None, says("Resource group of the account.", LOOK_UPS)] = None
    aad: Annotated[Aad | None, says("Entra sign-in for Batch.")] = None
    test_cluster: Annotated[bool, says("A cluster inside Microsoft.", IGNORED)] = False
    application_insights: Annotated[ApplicationInsights | None, says("Batch Insights.")] = None


class StorageCredentials(Block, frozen=True, kw_only=True):
    account: Annotated[Text, says("Name of the storage account.", "*.storageContainerUrl")]
    account_key: Annotated[Secret | None, says(
        "Key of the storage account. Without it, batchtrain signs in by Entra ID.",
        "batchtrain: signs SAS tokens")] = None
    account_key_keyvault_secret_id: Annotated[str | None, says("Key Vault secret that holds the key.", VAULT)] = None
    endpoint: Annotated[str, says(
        "DNS suffix of the storage service, or a full blob service URL.", "*.storageContainerUrl")] = "core.windows.net"
    resource_group: Annotated[str | None, says("Resource group of the account.", LOOK_UPS)] = None

    @property
    def has_key(self) -> bool:
        """Whether its key signs links; without a key, Entra ID does."""
        return bool(self.account_key or self.account_key_keyvault_secret_id)

    @property
    def files_url(self) -> str:
        """The URL of the account's file service. Azurite has none: the emulator has only the names of shares."""
        if ".blob." in self.endpoint:
            return self.endpoint.rstrip("/").replace(".blob.", ".file.", 1)
        return f"https://{self.account}.file.{'core.windows.net' if '://' in self.endpoint else self.endpoint}"


class RegistryCredentials(Block, frozen=True, kw_only=True):
    username: Annotated[str | None, says(
        "User name at the registry.", f"{REGISTRIES}.username, {REGISTRIES}.registryServer")] = None
    password: Annotated[Secret | None, says("Password or token at the registry.", f"{REGISTRIES}.password")] = None
    password_keyvault_secret_id: Annotated[str | None, says("Key Vault secret that holds the password.", VAULT)] = None
    identity: Annotated[str | None, says(
        "Resource id of a managed identity of the pool with the right to pull, in place of user name and password.",
        f"{REGISTRIES}.identityReference.resourceId")] = None


class Management(Block, frozen=True, kw_only=True):
    subscription_id: Annotated[str | None, says("Azure subscription.", LOOK_UPS)] = None
    aad: Annotated[Aad | None, says("Entra sign-in for Azure Resource Manager.")] = None


class KeyVault(Block, frozen=True, kw_only=True):
    uri: Annotated[str | None, says("URL of the vault.", VAULT, example="https://NAME.vault.azure.net")] = None
    credentials_secret_id: Annotated[str | None, says("Secret that holds a whole credentials file.", VAULT)] = None
    aad: Annotated[Aad | None, says("Entra sign-in for Key Vault.")] = None


class GrafanaAdmin(Block, frozen=True, kw_only=True):
    username: Annotated[str | None, says("User name.", IGNORED)] = None
    password: Annotated[Secret | None, says("Password.", IGNORED)] = None
    password_keyvault_secret_id: Annotated[str | None, says("Secret.", IGNORED)] = None


class Grafana(Block, frozen=True, kw_only=True):
    admin: Annotated[GrafanaAdmin | None, says("Administrator of the monitoring VM.")] = None


class Monitoring(Block, frozen=True, kw_only=True):
    grafana: Annotated[Grafana | None, says("Grafana of the monitoring VM.")] = None


class Slurm(Block, frozen=True, kw_only=True):
    db_password: Annotated[Secret | None, says("Password of Slurm's database.", IGNORED)] = None


class AccountSecret(Block, frozen=True, kw_only=True):
    """Secrets of a user account or a file share. They are not in pool.yaml, so that a recipe contains no secrets."""

    username: Annotated[str | None, says(
        "User name. Default: the name of the account.",
        "pool.mountConfiguration.cifsMountConfiguration.username")] = None
    password: Annotated[Secret | None, says(
        "Password.", "pool.userAccounts.password, pool.mountConfiguration.cifsMountConfiguration.password")] = None
    password_keyvault_secret_id: Annotated[str | None, says("Key Vault secret that holds the password.", VAULT)] = None
    ssh_private_key: Annotated[str | None, says(
        "Path of a private key for logins between the nodes.",
        "pool.userAccounts.linuxUserConfiguration.sshPrivateKey")] = None


class Credentials(Block, frozen=True, kw_only=True):
    aad: Annotated[Aad | None, says("Entra sign-in for every service without its own.")] = None
    batch: Annotated[BatchCredentials | None, says("The Batch account.")] = None
    batch_accounts: Annotated[dict[str, BatchCredentials], says(
        "More Batch accounts, by the name that `candidates` of a pool and `--account` use.")] = {}
    storage: Annotated[dict[str, StorageCredentials], says("Storage accounts, by the name that other files use.")] = {}
    storage_aad: Annotated[Aad | None, says("Entra sign-in for storage (written `storage.aad` in older files).")] = None
    docker_registry: Annotated[dict[str, RegistryCredentials], says(
        "Container registries by server; `hub` is Docker Hub.")] = {}
    singularity_registry: Annotated[dict[str, RegistryCredentials], says(
        "Registries of Singularity and Apptainer images by server.")] = {}
    user_accounts: Annotated[dict[str, AccountSecret], says("Secrets of the pool's `user_accounts`, by name.")] = {}
    shares: Annotated[dict[str, AccountSecret], says("Logins of CIFS shares, by the volume's alias.")] = {}
    management: Annotated[Management | None, says("Azure Resource Manager.")] = None
    keyvault: Annotated[KeyVault | None, says("Key Vault.")] = None
    monitoring: Annotated[Monitoring | None, says("Batch Shipyard's monitoring VM.")] = None
    slurm: Annotated[Slurm | None, says("Batch Shipyard's Slurm cluster.")] = None

"""Whether a name says that its value is a secret, and which values are none in spite of their name. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

import batchtrain.config.types  # noqa: F401  # defines every block
from batchtrain.config.patterns import late
from batchtrain.config.types.base import Block
from batchtrain.config.types.secret import Secret


def _is_of_secret(hint: object) -> bool:
    return hint is Secret or any(map(_is_of_secret, getattr(hint, "__args__", ())))


_HINTS = [(name, hint) for block in Block.__subclasses__() for name, hint in block.__annotations__.items()]
SECRETS = frozenset(name for name, hint in _HINTS if _is_of_secret(hint))
"""The names of the properties that hold a secret."""
PUBLIC = frozenset(name for name, _ in _HINTS) - SECRETS
"""The names of the other properties: their types say that they hold no secret."""

VARIABLES = "environment_variables"
"""The property of the configuration whose values are environment variables."""

_WORD = late(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET = late(
    r"password|passwd|pass_?phrase|secret(?!ar)"
    r"|(?:^|_)(?:token|key|pwd|pass|passcode|pat|sas|jwt|dsn|creds?|credentials?|cookie|bearer|auth|authorization)$"
    r"|(?:api|auth|access|account|private|storage|license|admin|session)_?(?:key|token)(?!_ids?$)"
    r"|(?:admin|db|ftp|http|mail|proxy|redis|root|smtp|sql|ssh|sudo|user)pass$|(?:bot|git|hf|hub|lab|slack)token$"
    r"|pwd$|^sig$|_signature$|conn(?:ection)?_?str(?:ing)?$|webhook_ur[il]$|sas_ur[il]$"
)
"""Of the words of a name in lower case, joined by `_`."""
_ORDINARY = late(
    r"(?:^|_)(?:max|min|num|total|avg|per|by|first|last|next|prev|begin|start|end|stop|pad|eos|bos|unk|cls|sep|mask|oov|null"
    r"|special|placeholder|initializer|image|video|audio|vision|visual|text|word|char|byte|lang|language|prompt|system"
    r"|assistant|tool|think|thinking|context|vocab|added|sub|fill|blank|patch|class|instance|separator|trigger|input"
    r"|output|target|source|label|control|ignore|forced|decoder)_token$"
    r"|(?:^|_)(?:public|sort|order|group|primary|foreign|partition|row|column|col|index|join|dict|map|cache|lookup|search"
    r"|data|dataset|train|test|val|eval|metric|metrics|loss|monitor|best|batch|model|state|param|caption|question"
    r"|answer|response|chosen|rejected|feature|field|config|json|yaml|hot|shift|object|image|video|audio|text|prompt"
    r"|input|output|target|source|label|checkpoint|weights?|time|random|rng|prng|known|meta|metadata|item|log)_key$"
    r"|(?:^|_)(?:forward|backward|num|first|second|third|single|multi|one|two|low|high|band|per|max|min|warmup|by)_?pass$"
    r"|(?:^|_)(?:file|glob|name|include|exclude|regex)_pat$|(?:^|_)(?:input|output|call|serving|model|function)_signature$"
)
"""Names of machine learning and of data that end like those of secrets."""
_ABOUT = frozenset(
    {"file", "files", "path", "dir", "directory", "folder", "stdin", "name", "names", "length", "len", "count", "size",
     "type", "policy", "env", "mode", "manager", "store", "expiry", "ttl", "enabled", "required", "hint", "header",
     "ref"}
)  # fmt: skip
"""The last word of a name that says something about a secret."""
_BARE = frozenset({"key", "pass", "pat", "auth", "bearer"})
"""Words that alone are too common to mark a secret."""

_REFERENCE = late(r"\$[A-Z_][A-Z0-9_]*|\$\{\w+\}|%[A-Z_][A-Z0-9_]*%|\$\(.*|`.*|(?:\*\*\*)+|[.…]+|[xX]{3,}", re.DOTALL)
"""What stands for a value: a variable, a command, a mask, an ellipsis."""
_PLACEHOLDER = late(r"""\{\{[\w:./ -]*\}\}|\{[^{}":\n]*\}""")
_KEY_IN_PATH = late(r"[=+]|(?=[^/]*[a-z])(?=[^/]*[A-Z])[^/]{12}")
"""What a path rather not has, and a key in base64 does: padding, or a long name with small and capital letters."""
_FILE = late(r"[\w./~@%+-]+\.(?:pem|key|pub|crt|cer|pfx|p12|json|ya?ml|toml|ini|cfg|conf|env|txt)")
_WORDS = late(r"true|false|yes|no|on|off|none|null|auto|basic|ntlm|login|oauth2?")
"""Values that say whether or how."""
_EXAMPLE = late(r"(?:YOUR_)?(?:API_|ACCESS_)?(?:TOKEN|KEY|PASSWORD|NAME|VALUE|FILE|PATH|DIR|ID)")
_NUMBER = late(r"[+-]?\d{1,6}(?:\.\d+)?(?:[eE][+-]?\d+)?")
_COUNTED = late(r"(?:token|key|pat|sas|sig|^pass|auth)$")
_FLAG = late(r"(?:use|enable|disable|no|with|without|require|has|is|skip|allow|show)_")


@lru_cache(maxsize=4096)
def words_of(name: str) -> str:
    """The words of a name in lower case, joined by `_`; digits are left out."""
    return "_".join(_WORD.findall(name)).lower()


@lru_cache(maxsize=4096)
def is_secret(variable: str) -> bool:
    """Whether the name of an environment variable marks its value as secret, such as `HF_TOKEN` or `DB_PWD`."""
    words = words_of(variable)
    if words in ("pwd", "oldpwd"):
        return variable not in ("PWD", "OLDPWD")  # the shell's directories
    is_constant = variable.isupper() and words.endswith(("_key", "_token"))  # `BLOB_KEY` and `--object-key` differ
    return _SECRET.search(words) is not None and (is_constant or _ORDINARY.search(words) is None)


@lru_cache(maxsize=4096)
def names_secret(name: str) -> bool:
    """Whether a name in another place marks its value as secret: an option, a setting, a header, a key of a mapping."""
    words = words_of(name)
    if words in _BARE and not name.isupper():
        return False
    return is_secret(name) and words.rpartition("_")[2] not in _ABOUT and not words.endswith("keyvault_secret_id")


def hides(within: str, key: str) -> bool:
    """Whether the value of a key is secret: of a secret property, of a variable, or of a name that is no property.
    within: the key of the mapping."""
    if within == VARIABLES:
        return is_secret(key)
    return key in SECRETS or (key not in PUBLIC and names_secret(key))


def stands_for(value: str) -> bool:
    """Whether a value is no secret wherever it is: a reference to a variable, a placeholder, the path of a file."""
    is_path = value.startswith(("./", "../", "~/")) or (value[:1] == "/" and _KEY_IN_PATH.search(value) is None)
    return is_path or bool(_REFERENCE.fullmatch(value) or _FILE.fullmatch(value))


def is_placeholder(value: str) -> bool:
    """Whether a value is filled in when a request is sent, such as `{{registry:example.org}}`."""
    return _PLACEHOLDER.fullmatch(value) is not None


def is_ordinary(name: str, value: str) -> bool:
    """Whether a value in a text is no secret in spite of its name: a number, a word that says how, an example."""
    words = words_of(name)
    plain = len(value) == 1 or _WORDS.fullmatch(value.lower()) or _EXAMPLE.fullmatch(value)
    number = _NUMBER.fullmatch(value) and (_COUNTED.search(words) or _FLAG.match(words))
    return bool(plain or number) or _is_expression(name, value) or stands_for(value) or is_placeholder(value)


def _is_expression(name: str, value: str) -> bool:
    """Whether a program names the value like its argument, as in `token=token` or `api_token=self.token`."""
    before, _, last = value.lower().rpartition(".")
    return last == name.lower().rpartition(".")[2] or (before == "self" and words_of(name).endswith(last))

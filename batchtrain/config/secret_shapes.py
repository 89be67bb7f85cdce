"""Finds secrets in a text by their shape: values of secret names, and tokens, keys and logins. Pure.

Each shape has the public documentation that describes it. A text is searched for a fixed part of a shape first,
because nearly all texts have none.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from batchtrain.config.patterns import late
from batchtrain.config.secret_names import PUBLIC, VARIABLES, is_ordinary, is_secret, names_secret, words_of

Span = tuple[int, int]


class Shape(NamedTuple):
    """A kind of secret. Its value is the group `value`, otherwise the whole match."""

    hints: tuple[str, ...]
    """One of these is in every text with such a secret, in lower case."""
    pattern: str
    """Compiled at its first use: all of them would take 3 ms of every start."""
    source: str


def _shape(hints: str, pattern: str, source: str) -> Shape:
    return Shape(tuple(hints.split("|")), pattern, source)


_ALONE, _END = r"(?<![A-Za-z0-9_+/-])", r"(?![A-Za-z0-9_+/-])"
_VALUE = r"""(?:\\*["'])*(?P<value>[^\s"'\\|;&<>()]+)"""
"""A word of a shell, without its quotes."""
_COMMAND = r"[^\n|;&]{0,300}?[ \t]"
"""The words of a command before an option. A search without a limit would take the square of the length."""

AZURE = "Microsoft Security Utilities, PreciselyClassifiedSecurityKeys"
"""github.com/microsoft/security-utilities: the kinds of keys that Azure's services make."""
CHARACTERS = "[A-Za-z0-9+/]"

# fmt: off
SHAPES = (
    _shape("private key", r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:(?!-----BEGIN)[\s\S])*?"
           r"(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|(?=-----BEGIN)|\Z)", "RFC 7468; RFC 4880"),
    _shape("eyj", r"(?<![\w.-])eyJ[\w-]{10,}\.[\w-]*\.[\w.-]+", "RFC 7515, section 3.1 (JWT)"),
    _shape("://", r"://[^/\s:@\"']*:(?P<value>[^/\s\"']+)(?=@)", "RFC 3986, section 3.2.1: user:password@"),
    _shape("://", r"https?://(?P<value>(?=[A-Za-z_-]*\d)[\w.~-]{20,})(?=(?::[^/@\s]*)?@)",
           "RFC 3986, section 3.2.1: token as user"),
    _shape("bearer", r"\b(?:[Bb]earer|BEARER):?[ \t]+"
           r"(?P<value>(?=[A-Za-z]*[\d_.~+/=]|[A-Za-z][a-z]*[A-Z]|\S{16})[\w.~+/-]{6,}=*)",
           "RFC 6750, section 2.1"),
    _shape("basic", r"\b[Bb]asic[ \t]+(?P<value>(?=[A-Za-z+/]*[\d=])[A-Za-z0-9+/]{8,}={0,2})", "RFC 7617, section 2"),
    # Azure
    _shape("==", rf"(?<!sha512-)(?<![A-Za-z0-9+/=]){CHARACTERS}{{86}}==",
           "learn.microsoft.com/azure/storage/common/storage-account-keys-manage: 512 bits in base64"),
    _shape("code=", r"[?&]code=(?P<value>[\w%/+=-]{20,})",
           "learn.microsoft.com/azure/azure-functions/function-keys-how-to"),
    _shape("q~", r"(?<![\w~.-])[\w~.-]{3}[78]Q~[\w~.-]{31,34}(?![\w~-])", f"{AZURE}: SEC101/156, Entra ID"),
    _shape("jqqj9", r"(?<![A-Za-z0-9])[A-Za-z0-9]{52}JQQJ9[9DH][A-Za-z0-9]{26}(?:[A-Za-z0-9]{2}==)?",
           f"{AZURE}: SEC101/200"),
    _shape("azfu", r"(?<![\w-])[\w-]{44}AzFu[\w-]{5}[AQgw]==", f"{AZURE}: SEC101/158, Functions"),
    _shape("azse", r"(?<![\w+/-])[A-Za-z0-9]{42}AzSe[A-D][A-Za-z0-9]{5}", f"{AZURE}: SEC101/166, AI Search"),
    _shape("aiot|azca|azeg|+arm|+aeh|+asb",
           rf"(?<![\w+/-]){CHARACTERS}{{33}}(?:AIoT|AzCa|AZEG|\+A(?:Rm|Eh|Sb))[A-P]{CHARACTERS}{{5}}=",
           f"{AZURE}: SEC101/154, 171 to 173, 178, 199"),
    _shape("+acr", rf"(?<![\w+/-]){CHARACTERS}{{42}}\+ACR[A-D]{CHARACTERS}{{5}}", f"{AZURE}: SEC101/176, registries"),
    _shape("dapi", _ALONE + r"dapi[0-9a-f]{32}(?:-\d+)?" + _END, "docs.databricks.com/dev-tools/auth/pat"),
    # repositories, registries and clouds
    _shape("gho_|ghp_|ghr_|ghs_|ghu_", _ALONE + r"gh[oprsu]_\w{20,}",
           "docs.github.com: About authentication to GitHub, GitHub's token formats"),
    _shape("github_pat_", _ALONE + r"github_pat_\w{20,}", "the same"),
    _shape("glpat-|gloas-|gldt-|glrt-|glcbt-|glptt-|glft-|glimt-|glagent-|glsoat-|glffct-",
           _ALONE + r"gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-[\w.-]{16,}",
           "docs.gitlab.com/security/tokens: Token prefixes"),
    _shape("atatt3x", r"ATATT3x[\w=-]{20,}", "support.atlassian.com: Manage API tokens"),
    _shape("npm_", _ALONE + r"npm_[A-Za-z0-9]{30,}", "docs.npmjs.com: About access tokens"),
    _shape("pypi-", _ALONE + r"pypi-[\w-]{16,}", "pypi.org/help/#apitoken"),
    _shape("dckr_", _ALONE + r"dckr_[op]at_[\w-]{20,}", "docs.docker.com/security/access-tokens"),
    _shape("oy2", _ALONE + r"oy2[a-z2-7]{43}" + _END, f"{AZURE}: SEC101/031, NuGet"),
    _shape("akia|asia|abia|acca", _ALONE + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}" + _END,
           "docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers: Unique ID prefixes"),
    _shape("aiza", _ALONE + r"AIza[\w-]{35}", "cloud.google.com/docs/authentication/api-keys"),
    _shape("ya29.", r"ya29\.[\w-]{20,}", "developers.google.com/identity/protocols/oauth2"),
    _shape("gocspx-", r"GOCSPX-[\w-]{20,}", "developers.google.com/identity/protocols/oauth2"),
    _shape("hvs.|hvb.|hvr.", _ALONE + r"hv[sbr]\.[\w-]{20,}", "developer.hashicorp.com/vault/docs/concepts/tokens"),
    _shape("dop_v1_|doo_v1_|dor_v1_", r"do[opr]_v1_[a-f0-9]{40,}", "docs.digitalocean.com: personal access tokens"),
    _shape("tskey-", r"tskey-[\w-]{12,}", "tailscale.com/kb/1085/auth-keys"),
    # machine learning
    _shape("hf_", _ALONE + r"hf_[A-Za-z0-9]{20,}", "huggingface.co/docs/hub/security-tokens"),
    _shape("sk-", _ALONE + r"sk-[\w-]{20,}", "platform.openai.com/docs/api-reference; docs.anthropic.com/api"),
    _shape("nvapi-", _ALONE + r"nvapi-[\w-]{20,}", "docs.nvidia.com/ngc: API keys"),
    _shape("gsk_", _ALONE + r"gsk_[A-Za-z0-9]{20,}", "console.groq.com/docs"),
    _shape("r8_", _ALONE + r"r8_[A-Za-z0-9]{20,}", "replicate.com/docs/topics/security/api-tokens"),
    # messages and payments
    _shape("xox", _ALONE + r"xox[a-z]-[\w-]{10,}", "docs.slack.dev/authentication/tokens"),
    _shape("xapp-", _ALONE + r"xapp-[\w-]{10,}", "docs.slack.dev/authentication/tokens"),
    _shape("hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<value>[\w/-]+)",
           "docs.slack.dev: Sending messages using incoming webhooks"),
    _shape("/webhooks/", r"discord(?:app)?\.com/api/webhooks/(?P<value>[\w/-]+)",
           "discord.com/developers/docs/resources/webhook"),
    _shape("webhook", r"\.webhook\.office\.com/webhookb2/(?P<value>[\w@/-]+)",
           "learn.microsoft.com/microsoftteams: Create Incoming Webhooks"),
    _shape(":aa", r"(?<!\d)\d{8,10}:AA[\w-]{33}", "core.telegram.org/bots/api#authorizing-your-bot"),
    _shape("sg.", _ALONE + r"SG\.[\w-]{16,}\.[\w-]{16,}", "docs.sendgrid.com: API keys"),
    _shape("_live_|_test_", _ALONE + r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}", "docs.stripe.com/keys"),
    _shape("whsec_", _ALONE + r"whsec_[\w+/=-]{16,}", "docs.stripe.com/webhooks"),
    _shape("age-secret-key-", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}", "github.com/FiloSottile/age"),
    # options and input of programs
    _shape("curl", rf"\bcurl\b{_COMMAND}(?:-[A-Za-z]*u|--user|--proxy-user)[ =]?(?:\\*[\"'])*[^\s:\"']+:{_VALUE}",
           "curl(1): -u, --user, --proxy-user"),
    _shape("login", r"\b(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|az|singularity|apptainer)\b"
           rf"[^\n|;&]{{0,60}}?[ \t]login\b{_COMMAND}(?:-p[ =]?|--password[ =]){_VALUE}",
           "docker-login(1); az login --help"),
    _shape("login", rf"\b(?:wandb|comet|neptune)[ \t]+login[ \t]+(?:--?[\w-]+[ \t]+)*{_VALUE}",
           "docs.wandb.ai/ref/cli/wandb-login"),
    _shape("sshpass", rf"\bsshpass[ \t]+-p[ ]?{_VALUE}", "sshpass(1): -p"),
    _shape("mysql|mariadb|7z", rf"\b(?:mysql|mariadb|7z)[\w-]*\b{_COMMAND}-p{_VALUE}", "mysql(1), 7z(1): -p"),
    _shape("mongo|twine", rf"\b(?:mongo|twine)\w*\b{_COMMAND}-p[ ]+{_VALUE}",
           "mongodb.com/docs/database-tools: -p; twine.readthedocs.io: -p"),
    _shape("ldap", rf"\bldap\w+\b{_COMMAND}-w[ ]*{_VALUE}", "ldapsearch(1): -w"),
    _shape("smbclient", rf"\bsmbclient\b{_COMMAND}-U[ ]?[^\s%]+%{_VALUE}", "smbclient(1): -U"),
    _shape("_authtoken", rf":_authToken(?:=|[ \t]+){_VALUE}", "docs.npmjs.com/cli/configuring-npm/npmrc"),
    _shape("redis-cli", rf"\bredis-cli\b{_COMMAND}-a[ ]+{_VALUE}", "redis.io/docs: redis-cli -a"),
    _shape("sqlcmd|bcp|zip", rf"\b(?:sqlcmd|bcp|(?:un)?zip)\b{_COMMAND}-P[ ]?{_VALUE}",
           "learn.microsoft.com/sql/tools/sqlcmd, bcp-utility: -P; zip(1), unzip(1): -P"),
    _shape("pass:", rf"(?<![\w:])pass:{_VALUE}", "openssl-passphrase-options(1): pass:"),
    _shape("machine", rf"\bmachine\s+\S+\s+login\s+\S+\s+password\s+{_VALUE}", "netrc(5)"),
    _shape("stdin|with-token|sudo|chpasswd",
           rf"\b(?:echo|printf)[ \t]+(?:-\w+[ \t]+|[\"'\\]*%s[^\s]*[ \t]+)*{_VALUE}(?:\\*[\"'])*[ \t]*\|"
           r"[^|\n]*(?:--password-stdin|-passin stdin|--with-token|sudo -S|chpasswd)",
           "docker-login(1); gh auth login --help; sudo(8): -S; chpasswd(8)"),
    _shape("openssl", rf"\bopenssl\b{_COMMAND}-k[ \t]+{_VALUE}", "openssl-enc(1): -k"),
    _shape("login(", r"\blogin\((?:key=|token=)?(?:\\*[\"'])+(?P<value>[^\s\"'\\]+)", "docs.wandb.ai/ref/python/login"),
    _shape("auth", r"\\*\"auth\\*\":\s*\\*\"(?P<value>[A-Za-z0-9+/]{4,}={0,2})", "docker-login(1): config.json"),
    _shape("<<<", rf"(?:--password-stdin|--with-token)[^\n<]*<<<[ \t]*{_VALUE}", "bash(1): here strings"),
)
# fmt: on


def _any(words: Iterable[str]) -> re.Pattern[str]:
    """Matches one of the words. Grouped by their first letters it is five times as fast."""
    groups = itertools.groupby(sorted(words), key=lambda word: word[0])
    return late("|".join(f"{re.escape(letter)}(?:{'|'.join(re.escape(w[1:]) for w in g)})" for letter, g in groups))


_BY_HINT = {hint: [shape for shape in SHAPES if hint in shape.hints] for shape in SHAPES for hint in shape.hints}
_LETTERS = _any(hint for hint in _BY_HINT if hint[0].isalpha())
_SIGNS = _any(hint for hint in _BY_HINT if not hint[0].isalpha())
"""Nearly every text has none of the hints."""
_NAME = late(
    r"p(?:ass(?:word|wd|phrase|code|(?![a-z]))|wd|at(?![a-z]))|s(?:ecret|as(?![a-z])|ig(?:nature|(?![a-z])))|token(?![a-z])"
    r"|key(?![a-z])|auth(?:orization|(?![a-z]))|c(?:red(?:s|entials?|(?![a-z]))|ookie|onn(?:ection)?_?str)|jwt|dsn|bearer"
    r"|webhook_?ur[il]"
)
"""A part of every name that marks a secret, in lower case."""
_BEFORE = late(r"[^\w.\]\[-]")
"""What is in no name."""
_SETS = late(
    r"(?<![\w-])(?:(?:setenv|setx|ENV|set -\w+|-g?env|config(?:ure)? (?:--)?set)\s+"
    r"|(?:setdefault|putenv|setenv|SetEnvironmentVariable)\((?:\\*[\"'])+)$"
)
"""A command or a function that sets a variable without `=`."""
_PAIR = late(r"(?:-e|--env|--build-arg|--from-literal|--set|export)[ =](\\*[\"'])$")
"""What stands before a name that is in quotes together with its value."""
_ENCODED = late(r"[A-Za-z0-9+/]{2048,}={0,2}")
"""Files that travel in a request."""
_AFTER = late(
    r"""(?P<name>[\w.-]{0,60})(?P<quotes>(?:\\*["'])*)(?:(?<=["'])\])?
        (?:(?P<spaces>[ \t]*)(?P<sep>:?=>?(?!=)|:[-=+](?=[^}\n]{0,200}\})|:(?![:/?]))(?:\\*[ \t])*
        | (?P<space>,?(?:[ \t]|\\*\r?\n[ \t]*|\\+n)+|,(?=\\*["'])))
        (?:[fFrRbB](?=\\*["'])|\$(?='))?(?P<quote>'\\*"'\\*"'|\\*"|\\*')?""",
    re.VERBOSE,
)
"""The rest of a name, and what is between it and its value."""
_BARE = late(
    r"""(?: \$\{[^}\s]*\} | [^\s"'`;&|<>()\\,}\]] | [,}\]](?![\s"'\\,}\]);]|$) | \\(?![nrt"'])[^\s"'] )+""",
    re.MULTILINE | re.VERBOSE,
)
"""A value without quotes, as a shell, a link or a flow of YAML ends it."""
_JOINED = late(
    r"""(?P<quote>'\\{0,16}"'\\{0,16}"'|\\{0,16}["'])(?=[^\s"'\\,;:}\])>=|&<])[^\n]{0,256}?(?P=quote)
    | [^\s"'`;&|<>()\\,}\]:=]+""",
    re.VERBOSE,
)
"""What a shell joins to the word before it: a part in quotes, or one without."""
_QUOTE, _GAP = r"(?:\\{0,16}[\"'])?", r"(?:[\s,;-]|\\{1,16}[nrt]){1,200}"
_IS = rf"{_QUOTE}\s{{0,20}}[:=]\s{{0,20}}"
_FIELD = rf"(?:{_QUOTE}\w{{1,40}}{_IS}{_QUOTE}[\w./-]{{0,80}}{_QUOTE}{_GAP}){{0,3}}?"
"""Some other fields between a name and its value."""
_NAME_FIELD = rf"(?<![\w-])(?:name|key|variable){_IS}{_QUOTE}(?P<name>[\w.:-]{{1,80}}){_QUOTE}"
_NAME_FIELDS = late(rf"(?<![\w-])(?:name|key|variable)(?={_IS}{_QUOTE}(?P<name>[\w.:-]{{1,80}}))", re.IGNORECASE)
"""Every name in a field of its own: a cheap look, because the fields of most requests have no secret."""
_VALUE_FIELD = rf"(?:secure|secret)?value{_IS}"
_FIELDS = (
    rf"""{_NAME_FIELD}{_GAP}{_FIELD}{_QUOTE}{_VALUE_FIELD}(?P<quote>\\{{0,16}}["'])(?P<value>[^\n]{{1,8192}}?)(?P=quote)""",
    rf"""{_NAME_FIELD}{_GAP}{_FIELD}{_QUOTE}{_VALUE_FIELD}(?P<value>[^\s"'\\,{{}}\]]+)""",
    rf"""{_NAME_FIELD}{_GAP}{_FIELD}{_QUOTE}(?:secure|secret)?value{_QUOTE}\s{{0,20}}:[ \t]{{1,20}}"""
    r"""(?P<value>[^\s"'\\,{}\]](?:[^\n\\,{}\]]|\\(?![nrt"'])){0,8192})""",
    rf"""{_VALUE_FIELD}(?P<quote>\\{{0,16}}["'])(?P<value>[^"'\n]{{1,8192}}?)(?P=quote){_GAP}{_FIELD}{_QUOTE}{_NAME_FIELD}""",
    rf"""{_VALUE_FIELD}(?P<value>[^\s"'\\,{{}}\]]{{1,8192}}){_GAP}{_FIELD}{_QUOTE}{_NAME_FIELD}""",
)
"""A name and its value in fields of their own: `{"name": "DB_PWD", "value": "x"}`."""
_ELEMENTS = (
    rf"{_NAME_FIELD}[^<>]{{0,100}}(?<!/)>\s{{0,80}}(?P<value>[^<>\s][^<>]{{0,8192}})<",
    r"<(?:name|key)>\s{0,20}(?P<name>[\w.:-]{1,80})\s{0,20}</\w{1,20}>(?:\s|\\{1,16}[nrt]){0,200}"
    r"<(?:value|string)>(?P<value>[^<>]{1,8192})<",
    r"<(?P<name>[\w:.-]{1,80})(?:\s[^<>]{0,200})?>\s{0,80}(?:<!\[CDATA\[)?(?P<value>[^<>\s][^<>]{0,8192}?)(?:\]\]>)?\s{0,80}"
    r"</(?P=name)\s{0,8}>",
)
"""The same in elements of XML."""
_SCHEME = late(r"(?:bearer|basic|token|digest|negotiate|apikey|bot)(?:\\*[ \t]+|%20)(?=\S)", re.IGNORECASE)
"""What stands before the value in a header `Authorization`."""
_LONG_OPTION = late(r"pass(?:word|wd|phrase)?|pwd|(?:api_?|auth_?|access_?|account_?|secret_?)?(?:key|token)|secret")
"""The words of an option with one dash, such as `-password`; `-psecret` is `-p` and its value."""
_OPTION = late(r"--?[\w.-]+")
_CALL = late(r"[A-Za-z_][\w.]*(?:\[\w*)?")
"""The beginning of an expression, such as `os.environ[` and `os.getenv`."""
_SHORT_WORD, _CONSTANT = late("[A-Za-z]{1,7}"), late("[A-Z]+(?:_[A-Z]+)+")
"""After ` = ` without quotes a word of a program, in quotes the name of a variable."""
_SHORT = 200
_JUDGED = 256
"""Characters of a value without quotes that say whether it is a secret."""
_LONGEST = 8192
"""Characters of a value in quotes."""
_NEEDS_QUOTES = late(r"(?:token|secret|pass|pat|auth|sig|cred|creds|credentials|jwt|dsn|sas)$")
"""Words of prose: before a colon they are a name only in quotes, or with a value in quotes or of random letters."""
_RANDOM = late(r"(?=\S{0,199}[a-z])(?=\S{0,199}[A-Z])(?=\S{0,199}\d)[\w+/=.~-]{16,200}(?![^\s\"'\\])")


def spans(text: str) -> Sequence[Span]:
    """Where the secrets of a text are, in order and without overlaps."""
    return _remembered(text) if len(text) <= _SHORT else _spans(text)


def replaced(text: str, places: Iterable[Span], new: str) -> str:
    """A text with another one in its places, which are in order and do not overlap."""
    parts: list[str] = []
    at = 0
    for start, end in places:
        parts += (text[at:start], new)
        at = end
    return "".join((*parts, text[at:]))


def may_have_secrets(text: str) -> bool:
    """Whether a text has a part of a name or of a shape that marks a secret."""
    lower = text.lower()
    return any(pattern.search(lower) for pattern in (_NAME, _LETTERS, _SIGNS))


@lru_cache(maxsize=4096)
def _remembered(text: str) -> Sequence[Span]:
    """Most texts of a document occur often."""
    return _spans(text)


def _spans(text: str) -> Sequence[Span]:
    if len(text) > 2048 and _ENCODED.fullmatch(text):
        return []
    lower = text.lower()
    if len(lower) != len(text):  # `İ` in lower case is two characters
        lower = "".join(character.lower()[:1] for character in text)
    matches = [*_named(text, lower), *_paired(text, lower)]
    if _LETTERS.search(lower) or _SIGNS.search(lower):
        matches += [span for hint in _BY_HINT if hint in lower for span in _shaped(text, _BY_HINT[hint])]
    merged: list[Span] = []
    for start, end in sorted(matches):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _shaped(text: str, shapes: Iterable[Shape]) -> Iterator[Span]:
    for shape in shapes:
        for match in re.finditer(shape.pattern, text):
            span = match.span("value") if "value" in match.re.groupindex else match.span()
            if not is_ordinary("password", text[slice(*span)]):
                yield span


def _paired(text: str, lower: str) -> Iterator[Span]:
    """The values whose names are in fields of their own, and those of elements of XML."""
    has_value, has_end = "value" in lower, "</" in lower
    if (has_value or has_end) and _NAME.search(lower):
        names = {part for match in _NAME_FIELDS.finditer(text) for part in (match[1], *re.split("[:-]", match[1]))}
        pairs = _ELEMENTS[1:] if has_end else ()
        if any(map(names_secret, names)):
            pairs += (*(_FIELDS if has_value else ()), *(_ELEMENTS[:1] if "<" in lower else ()))
        for match in itertools.chain.from_iterable(re.finditer(pair, text, re.IGNORECASE) for pair in pairs):
            name, value = match["name"].rpartition(":")[2], match["value"]
            if names_secret(name) and not is_ordinary(name, value):
                yield match.span("value")


def _named(text: str, lower: str) -> Iterator[Span]:
    """The values of secret names: `NAME=value`, `"name": "value"`, `--name value`, `${NAME:-value}`."""
    last = 0
    for hint in _NAME.finditer(lower):
        after = _AFTER.match(text, hint.end()) if hint.start() >= last else None
        if after is None:
            continue
        start = hint.start() - len(_BEFORE.split(text[max(0, hint.start() - 80) : hint.start()])[-1])
        if text[start - 1 : start] == "\\" and start < hint.start() and text[start] in "nrt":  # a line end in JSON
            start += 1
        name, sep, quote = text[start : hint.end()] + after["name"], after["sep"] or "", after["quote"] or ""
        pair = _PAIR.search(text, max(0, start - 20), start) if sep and not quote else None
        is_option = name[0] == "-" or (not sep and _SETS.search(text, max(0, start - 32), start) is not None)
        is_quoted = bool(after["quotes"] or quote) or _RANDOM.match(text, after.end()) is not None
        if not _marks(name, sep, is_option=is_option, is_quoted=is_quoted):
            continue
        quote = pair[1] if pair else quote
        start, end = _value(text, after.end(), quote, whole=words_of(name).endswith("cookie"))
        is_constant = bool(quote and after["spaces"]) and _CONSTANT.fullmatch(text, start, end) is not None
        is_code = is_constant or (not quote and _is_code(text, start, end, sep, is_spaced=bool(after["spaces"])))
        if sep == "=" and start < end:
            end = _joined(text, end, quote)
        if start < end and not is_code and not is_ordinary(name, text[start:end]):
            last = _bare(text, start, len(text))[1] if end - start == _JUDGED else end
            yield start, last


def _is_code(text: str, start: int, end: int, sep: str, *, is_spaced: bool) -> bool:
    """Whether a value without quotes is none: the next option, a mapping, an expression such as `key = key_of(x)`."""
    if not sep:
        return text[start : start + 1] == "-"
    if sep == ":":
        return text[start : start + 1] in ("{", "[")
    if _CALL.fullmatch(text, start, end) and (text[end : end + 1] == "(" or "[" in text[start:end]):
        return True
    return is_spaced and (_SHORT_WORD.fullmatch(text, start, end) is not None or text[end : end + 1] == "(")


def _marks(name: str, sep: str, *, is_option: bool, is_quoted: bool) -> bool:
    """Whether a name with its separator is before a secret. sep: empty between an option and its value."""
    base = name.lstrip("-").rpartition(".")[2]
    if not sep:
        is_plain = name[:2] == "--" or name[:1] != "-" or _LONG_OPTION.fullmatch(words_of(base)) is not None
        return is_option and is_plain and names_secret(base)
    if f"{VARIABLES}." in name:
        return is_secret(base)
    if sep == ":" and (base in PUBLIC or (not is_quoted and _NEEDS_QUOTES.fullmatch(base))):
        return False
    return names_secret(base) or names_secret(name)


def _value(text: str, start: int, quote: str, *, whole: bool) -> Span:
    """The value that begins after its quote, if it has one. whole: it ends with its line or its quotes."""
    end = text.find(quote, start, start + _LONGEST) if quote else -1
    while end > start and text[end - 1] == "\\":  # an escaped quote
        end = text.find(quote, end + 1, start + _LONGEST)
    if end < 0 and whole:
        end = min((at for at in (text.find(mark, start) for mark in "\"'\n") if at >= 0), default=len(text))
    if end < 0:
        scheme = _SCHEME.match(text, start)
        start = scheme.end() if scheme else start
        return _bare(text, start, start + _JUDGED)
    scheme = _SCHEME.match(text, start, end)
    return scheme.end() if scheme else start, end


def _joined(text: str, end: int, quote: str) -> int:
    """The end of a word of a shell whose first part ends at `end`, before its quote if it has one."""
    at = end + len(quote) if quote and text.startswith(quote, end) else end
    while match := _JOINED.match(text, at):
        end = at = match.end()
    return end


def _bare(text: str, start: int, most: int) -> Span:
    match = _BARE.match(text, start, most)
    return match.span() if match else (start, start)


def is_option(word: str) -> bool:
    """Whether the word of a command after this one is a secret."""
    return word[:1] == "-" and _OPTION.fullmatch(word) is not None and _marks(word, "", is_option=True, is_quoted=False)

"""A text with a secret of any shape is masked, and a text without one stays as it is."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchtrain.config.load import load
from batchtrain.config.masking import masked_document, masked_text, masked_words, masked_yaml, without_files
from batchtrain.config.secret_shapes import SHAPES, Shape
from batchtrain.plan import plan_recipe
from tests import examples

ROOT = Path(__file__).parents[3]
Z = "zQ81"
"""Is in every secret of a case, and nowhere else."""
LONG = Z + "b7Kd93mZx0" * 9
"""Part of a key."""


def key(length: int) -> str:
    return LONG[:length]


SHAPED = [
    f"-----BEGIN RSA PRIVATE KEY-----\n{key(60)}\n{Z}==\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{key(60)}\\n-----END OPENSSH PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY-----\n{key(60)}",
    f"eyJ{key(20)}.eyJ{key(20)}.{key(30)}",
    f"https://user:{Z}@example.org/x",
    f"postgresql+psycopg2://u:p@{Z}@h:5432/d",
    f"git clone https://{key(30)}@dev.azure.com/x",
    f"send Bearer {key(12)} to it",
    f"send Basic {key(12)}== to it",
    f"{key(86)}==",
    f"https://x.azurewebsites.net/api/f?code={key(40)}==",
    f"{Z[:3]}8Q~{Z}{key(28)}",
    f"{key(52)}JQQJ99{key(26)}",
    f"{key(44)}AzFu{key(5)}A==",
    f"{key(42)}AzSeA{key(5)}",
    f"{key(33)}+ASbA{key(5)}=",
    f"{key(33)}AzCaB{key(5)}=",
    f"{key(42)}+ACRA{key(5)}",
    "dapi" + "0a1b2c3d" * 4,
    f"ghp_{key(36)}",
    f"gho_{key(36)}",
    f"github_pat_{key(60)}",
    f"glpat-{key(20)}",
    f"ATATT3x{key(60)}",
    f"npm_{key(36)}",
    f"pypi-{key(60)}",
    f"dckr_pat_{key(27)}",
    "oy2" + "a2b3c4d5e" * 4 + "abcdefg",
    "AKIAIOSFODNN7EXAMPLE",
    f"AIza{key(35)}",
    f"ya29.{key(40)}",
    f"GOCSPX-{key(28)}",
    f"hvs.{key(24)}",
    "dop_v1_" + "0a1b2c3d" * 8,
    f"tskey-auth-{key(24)}",
    f"hf_{key(34)}",
    f"sk-proj-{key(40)}",
    f"sk-ant-api03-{key(40)}",
    f"nvapi-{key(64)}",
    f"gsk_{key(52)}",
    f"r8_{key(37)}",
    f"xoxb-{key(24)}",
    f"xapp-1-{key(24)}",
    f"https://hooks.slack.com/services/T0/B0/{key(24)}",
    f"https://discord.com/api/webhooks/1/{key(24)}",
    f"https://a.webhook.office.com/webhookb2/{key(24)}",
    f"123456789:AA{key(33)}",
    f"SG.{key(22)}.{key(43)}",
    f"sk_live_{key(24)}",
    f"whsec_{key(32)}",
    "AGE-SECRET-KEY-1" + "ZQ81ABCDEF" * 5,
    f"curl -sS -u me:{Z} https://example.org",
    f"docker login -u me -p {Z} example.org",
    f"az login --service-principal -u app -p '{Z}' --tenant t",
    f"wandb login --relogin {Z}",
    f"sshpass -p {Z} ssh host",
    f"mysqldump -u root -p{Z} db",
    f"7z x -p{Z} a.7z; unzip -P {Z} a.zip; bcp t out f -U sa -P {Z}",
    f"mongodump -u me -p {Z}; twine upload -u __token__ -p {Z} dist/*",
    f"ldapsearch -x -w {Z}",
    f"smbclient //host/share -U me%{Z}",
    f"npm config set //registry.npmjs.org/:_authToken {Z}",
    f"BEARER {Z}b7Kd93 Bearer: {Z}b7Kd93",
    f"https://{LONG}:x-oauth-basic@github.com/org/repo",
    f"redis-cli -h host -a {Z} ping",
    f"sqlcmd -S host -P {Z}",
    f"openssl rsa -passin pass:{Z}",
    f"openssl enc -aes256 -k {Z}",
    f"echo machine api.wandb.ai login user password {Z} > ~/.netrc",
    f"echo {Z} | docker login -u me --password-stdin",
    f"printf '%s' {Z} | gh auth login --with-token",
    f"echo '{Z}' | sudo -S ls",
    f"docker login --password-stdin <<< '{Z}'",
    f"""python -c "wandb.login(key='{Z}')\"""",
    f'{{"auths": {{"r": {{"auth": "{Z}=="}}}}}}',
]
"""By their shape alone, or by the program."""

PAIRED = [
    f"<password>{Z}</password>",
    f'<db:Password type="x">\n  {Z} two\n</db:Password>',
    f"<apiKey><![CDATA[{Z}]]></apiKey>",
    f'<add key="DbPassword" value="{Z}" />',
    f"<property><name>fs.azure.account.key</name>\n<value>{Z}</value></property>",
    f"<key>password</key><string>{Z}</string>",
    f'<param name="password">{Z}</param>',
    f'{{"name": "DB_PASSWORD", "value": "{Z}"}}',
    f'{{"Key":"DB_PWD","Value":"{Z} two"}}',
    f'{{"value": "{Z}", "name": "DB_PASSWORD"}}',
    f'{{"name": "DB_PASSWORD", "slotSetting": false, "type": "text", "value": "{Z}"}}',
    f"- name: DB_PASSWORD\n  value: {Z}\n",
    f"- value: {Z}\n  name: HF_TOKEN\n",
    f"- name: DB_PASSWORD\n  value: my {Z} word\n",
    f"[{{name: HF_TOKEN, value: {Z}}}]",
    f"--set-env-vars key=API_KEY,value={Z}",
    f'name  = "DB_PASSWORD"\n  value = "{Z}"',
    json.dumps(json.dumps({"name": "DB_PASSWORD", "value": Z})),
]
"""The name and its value are fields or elements of their own."""

JOINED = [
    f'DB_PWD=a"{Z}" python train.py',
    f"DB_PWD=a'{Z} two'b\"{Z}\"c python train.py",
    f"export DB_PWD='a'\"{Z}\"{Z}",
    f'DB_PWD="a"{Z}; python train.py',
    f"docker run -e DB_PWD=a'{Z}' image",
    json.dumps({"command": f'DB_PWD=a"{Z}"{Z} python'}),
]
"""Words of a shell with quotes in their middle."""

NAMED = [
    *PAIRED,
    *JOINED,
    f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={Z}+/==;EndpointSuffix=core.windows.net",
    f"Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={Z}=",
    f"InstrumentationKey={Z}-7425-40de-944b-e07fc1f90ae7;IngestionEndpoint=https://x/",
    f"BlobEndpoint=https://x/;SharedAccessSignature=sv=1&sig={Z}%3D&se=2",
    f"Server=tcp:h;Database=d;User ID=u;Pwd={Z};Encrypt=true",
    f"https://a.blob.core.windows.net/c/b?sv=2024&sig={Z}%2B&se=2030",
    f"https://a/b?access_token={Z}&x=1",
    f"https://s3.amazonaws.com/b?X-Amz-Signature={Z}",
    *(
        f"{name}={Z} python train.py"
        for name in (
            "DB_PWD", "ADMIN_PASS", "WANDB_APIKEY", "AZURE_DEVOPS_PAT", "PGPASSWORD", "MYSQL_PWD", "HF_TOKEN",
            "BLOB_KEY", "AWS_SECRET_ACCESS_KEY", "CLIENT_SECRET", "API_KEY_2", "GIT_CREDENTIALS", "SENTRY_DSN",
            "REDIS_AUTH", "STORAGE_SAS", "SSH_PASSPHRASE", "DB_CONNECTION_STRING", "TOKEN", "KEY",
        )
    ),
    *(
        f"train.py {option} {Z} --lr 0.1"
        for option in (
            "--api-key", "--api_key", "--apiKey", "-apikey", "--password", "--token", "--hf-token", "--secret",
            "--client-secret", "--account-key", "--wandb-key", "--passphrase", "--auth-token",
        )
    ),
    f"train.py --api-key={Z} --lr 0.1",
    f"train.py --password \\\n  {Z} --lr 0.1",
    f"train.py --password '{Z} and more {Z}' --lr 0.1",
    f'["--password", "{Z} {Z}", "--lr", "0.1"]',
    f"export ADMIN_PASS='a;b&c|{Z}'; next",
    f'export ADMIN_PASS="a \\"{Z}\\" b"; next',
    f'docker run -e "DB_PASSWORD={Z} {Z}" image',
    f"setenv API_KEY {Z}; mpirun -genv API_KEY {Z} x",
    f"${{HF_TOKEN:-{Z}}}",
    f"python train.py +wandb.api_key={Z} ++a.token={Z} environment_variables.key={Z} -Dapi.key={Z}",
    f"$env:API_KEY = '{Z}'",
    f"curl -H 'Authorization: Bearer {Z}' x",
    f"curl -H 'Authorization: token {Z}' x",
    f"curl --header=Authorization:\\ Bearer\\ {Z} x",
    f"curl -H 'X-Api-Key: {Z}' -H 'Ocp-Apim-Subscription-Key: {Z}' -H 'X-Auth-Token:{Z}' x",
    f"curl -H 'Cookie: session={Z}; other={Z}' x",
    f"""curl -d '{{"password": "{Z}", "token": "{Z}"}}' x""",
    f"//registry.npmjs.org/:_authToken={Z}",
    f"[default]\naws_secret_access_key = {Z}",
    f"mount -o username=u,password={Z},vers=3 //s/x /m",
    f"kubectl create secret generic x --from-literal=password={Z}",
    f"password: {Z}",
    f"aws configure set aws_secret_access_key {Z}; conda config --set token {Z}; setx DB_PWD {Z}",
    f"""python -c "import os; os.environ['HF_TOKEN'] = '{Z}'; os.environ.setdefault('A_PWD', '{Z}')\"""",
    f"os.putenv('HF_TOKEN','{Z}'); [Environment]::SetEnvironmentVariable('DB_PWD','{Z}')",
    f'["train.py","--api-key","{Z}"]',
    f"'api_key' => '{Z}'",
    f"cat > x.yaml <<END\ntoken: {LONG}\nsecret: {LONG}\nEND",
    f"MYSQLPASS={Z} SLACKTOKEN={Z} pass_phrase={Z}",
]  # fmt: skip
"""By a name before the secret."""

ORDINARY = [
    "train.py --tokenizer gpt2 --max-tokens 5 --max_token 5 --lr 0.1 --key value key=value tokens_per_second=5",
    "train.py --sort-key loss --text_key caption --pad-token '<pad>' --mask-token '[MASK]' --use-auth-token --lr 1",
    "train.py --token $HF_TOKEN --api-key=${API_KEY} --password \"$DB_PWD\" --secret $(cat /run/secret)",
    "export HF_TOKEN=$HF_TOKEN WANDB_API_KEY=${WANDB_API_KEY}; echo $TOKEN",
    "ssh -i /root/.ssh/id_rsa x; x --ssl-key=server.key --private-key ~/.ssh/id --password-file=/run/secrets/db",
    "HF_TOKEN_PATH=/root/.cache/token GOOGLE_APPLICATION_CREDENTIALS=/x/key.json PWD=/a OLDPWD=/b KEYBOARD=de",
    f"commit {'0123456789' * 4} sha256:{'0123456789abcdef' * 4} md5 {'0123456789abcdef' * 2}",
    f"docker pull docker://r.io:5000/image@sha256:{'0123456789abcdef' * 4}",
    f"integrity sha512-{'abcdABCD0123+/wx' * 5}abcdef==",
    "git@github.com:org/repo ssh://user@host https://user@example.org/x http://HOST:PORT mailto:a@b.c",
    "the token of a job: it is sent once; Basic training, Bearer of news; unknown key: `a`; secret: no",
    "mpirun -x HF_TOKEN -np 2 --mca pml ob1 python train.py; docker login --password-stdin r.io",
    "az login --identity; curl -u me https://x; mysql -u root -p db; wandb login; openssl rsa -passin env:X",
    "token = tokenizer.decode(x); key = key_of(name); f(token=token, api_key=self.api_key)",
    "authentication_mode=basic --auth none compass=5 --num-pass 2 --low-pass 300 monkey=1 patience=3",
    "AccountName=a;EndpointSuffix=core.windows.net ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC7 user@host",
    "password = os.environ['DB_PASSWORD']; api_key=os.getenv('API_KEY'); token = tokens[i]; pwd=args.pwd[0]",
    "docker run -p 8080:80 image && docker login r.io; secretary=Bob api-key-header: X-Api-Key secretKeyRef: database",
    '{"name": "max_tokens", "value": 5} {"name": "HF_TOKEN", "value": "$HF_TOKEN"} {"key": "sort_key", "value": "a"}',
    "- name: train\n  value: 3 # no secret\n- {key: secretName, value: db} <key>token_ids</key><string>a</string>",
    "<h1>Password</h1> <p class='token'>text</p> <secretName>db</secretName> f(value=x, name='password')",
    "{{registry:example.org}} {0} {name} *** <your-token> <TOKEN>",
]  # fmt: skip


@pytest.mark.parametrize("text", [*SHAPED, *NAMED])
def test_a_secret_of_every_shape_is_masked(text: str) -> None:
    masked = masked_text(text)
    assert "***" in masked
    assert Z not in masked


@pytest.mark.parametrize("text", NAMED)
def test_it_is_masked_inside_of_the_quotes_of_a_shell_and_of_json(text: str) -> None:
    command = f"/bin/bash -c {shlex.quote(text)}"
    for quoted in (command, msgspec.json.encode({"commandLine": command}).decode()):
        assert Z not in masked_text(quoted)


@pytest.mark.parametrize("text", ORDINARY)
def test_a_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert masked_text(text) == text


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.hints[0])
def test_every_shape_of_the_table_has_a_source_and_finds_what_its_hints_announce(shape: Shape) -> None:
    found = [text for text in SHAPED if re.search(shape.pattern, text)]
    assert shape.source
    assert found
    assert all(any(hint in text.lower() for hint in shape.hints) for text in found)


_PARTS = st.sampled_from([
    *SHAPED, *NAMED, *ORDINARY, "***", '"', "'", "\\", "\n", " ", "=", ": ", "--token ", "A_KEY=", "password: ", "{",
    "}", "Bearer ", "https://", "@", "é", "İ",
])  # fmt: skip


@pytest.mark.property
@examples.of(2000)
@given(st.lists(_PARTS, max_size=8).map("".join))
def test_masking_again_changes_nothing(text: str) -> None:
    masked = masked_text(text)
    assert masked_text(masked) == masked


@pytest.mark.parametrize("words", [
    ["train.py", "--api-key", f"{Z};a b", "--lr", "1"], ["x", f"--api-key={Z};a b"], ["x", f"DB_PWD={Z} & b"],
    ["run", "--set", f"a.token={Z} b"], ["run", f"--set=job_specifications[0].environment_variables.x_pwd={Z}"],
])  # fmt: skip
def test_a_word_of_a_command_line_is_masked_to_its_end(words: list[str]) -> None:
    masked = masked_words(words)
    assert not any(Z in word or word.endswith("b") for word in masked)
    assert masked_document({"command": words}) == {"command": masked}


@pytest.mark.parametrize("words", [
    ["docker", "login", "-u", "me", "-p", Z, "r.io"], ["curl", "-u", f"me:{Z}", "x"], ["wandb", "login", Z],
    ["sh", "-c", f"mysql -p{Z}"], ["curl", "-H", "Authorization:", "Bearer", LONG],
])  # fmt: skip
def test_a_word_of_a_command_line_is_masked_by_the_words_before_it(words: list[str]) -> None:
    masked = masked_words(words)
    assert Z not in "".join(masked)
    assert len(masked) == len(words)
    assert masked[0] == words[0]


# --- nothing of this repository is taken for a secret ---------------------------------------------------------------

TEXTS = [
    *(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "schemas").glob("*.json"),
    *(ROOT / "recipes").glob("*/*.md"), *(ROOT / "docker").rglob("Dockerfile*"),
]  # fmt: skip


def test_no_page_of_the_documentation_has_what_looks_like_a_secret() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in TEXTS}
    assert [name for name, text in texts.items() if masked_text(text) != text] == []


@cache
def recipes() -> list[Path]:
    return sorted(path.parent for path in (ROOT / "recipes").glob("*/config"))


@pytest.mark.parametrize("recipe", recipes(), ids=lambda path: path.name)
def test_no_recipe_and_no_plan_of_one_has_what_looks_like_a_secret(recipe: Path) -> None:
    for path in (recipe / "config").glob("*.yaml"):
        assert masked_yaml(path.read_text(encoding="utf-8")) == path.read_text(encoding="utf-8")
    plan = plan_recipe(load(recipe / "config").recipe)
    for document in (*(step.document for step in plan.steps), dict(plan.launch)):
        shown = without_files(msgspec.json.decode(msgspec.json.encode(document)))
        assert masked_document(shown) == shown

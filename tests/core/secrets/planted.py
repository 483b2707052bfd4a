"""Made-up secrets in the places where they turn up, and look-alikes that must stay.

Each row is ready to be put into a message (`message_of`) or is a form, a request target or a
header's value. All secrets are made up, and put together from parts, so that no scanner takes this
file for a leak.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import quote, urlencode

DATA = Path(__file__).parents[2] / "data"


class Place(Enum):
    """Where a row stands; what `raw` is follows from it."""

    ARGUMENTS = "arguments"
    """JSON, under `params.arguments.input` of a `tools/call`."""
    ANSWER = "answer"
    """JSON, under `content.input` of an accepted answer in `params.inputResponses`."""
    RESULT = "result"
    """JSON, under `result.structuredContent.output`."""
    ERROR = "error"
    """JSON, under `error.data`."""
    EVENT = "event"
    """JSON, under `params.data` of a notification in an event stream."""
    MESSAGE = "message"
    """JSON, a message as a whole."""
    FORM = "form"
    """A body in `application/x-www-form-urlencoded`."""
    TEXT = "text"
    """A body in `text/plain`."""
    TARGET = "target"
    """A request target."""
    HEADER = "header"
    """A header's value."""


JSON_PLACES = (Place.ARGUMENTS, Place.ANSWER, Place.RESULT, Place.ERROR, Place.EVENT)


@dataclass(frozen=True)
class Planted:
    """One row.

    Attributes:
        name: what it shows.
        place: where it stands.
        raw: what stands there, spelled for the place.
        secret: what must not reach the disk, with all escapes undone; None for a look-alike.
        rule: what finds it.
        depends_on: a name that has to stand beside it.
    """

    name: str
    place: Place
    raw: str
    secret: str | None = None
    rule: str = ""
    depends_on: str = ""

    def __str__(self) -> str:
        """Name the row in a test's id."""
        return self.name.replace(" ", "-")


_MESSAGES = {
    Place.ARGUMENTS: '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
    '{"name":"t","arguments":{"input":INPUT}}}',
    Place.ANSWER: '{"jsonrpc":"2.0","id":"r-2","method":"tools/call","params":{"name":"t",'
    '"inputResponses":{"ask":{"action":"accept","content":{"input":INPUT}}},'
    '"requestState":"opaque"}}',
    Place.RESULT: '{"result":{"content":[],"structuredContent":{"output":INPUT}},"id":1,"jsonrpc":"2.0"}',
    Place.ERROR: '{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no","data":INPUT}}',
    Place.EVENT: "id: 7\r\nevent: message\r\ndata: "
    '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":INPUT}}'
    "\r\n\r\n",
}
"""What a row is put into, in the place of `INPUT`."""


def message_of(row: Planted, raw: str | None = None) -> bytes:
    """Return the body that a row stands in.

    Args:
        raw: what to put there instead of the row's own.
    """
    text = _MESSAGES.get(row.place, "INPUT")
    return text.replace("INPUT", row.raw if raw is None else raw).encode()


def content_type_of(row: Planted) -> str:
    """Return the media type of the body that a row stands in."""
    return {
        Place.EVENT: "text/event-stream",
        Place.FORM: "application/x-www-form-urlencoded",
        Place.TEXT: "text/plain; charset=utf-8",
    }.get(row.place, "application/json")


# Made-up secrets


def encoded_header(text: str) -> str:
    """Return a text in the spelling that MCP has for headers."""
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def fill(length: int) -> str:
    """Return letters and digits that nobody takes for a real secret."""
    return ("Fake0NotReal1MadeUp2" * 20)[:length]


def digits(length: int) -> str:
    """Return hexadecimal digits that nobody takes for a real secret."""
    return ("fa4e0bad0c0ffee0" * 20)[:length]


def armoured(kind: str, lines: int = 4) -> str:
    """Return text in the form of a PEM file."""
    words = f"{kind} KEY" if "CERT" not in kind else kind
    body = "\n".join(fill(64) for _ in range(lines))
    return f"-----BEGIN {words}-----\n{body}\n-----END {words}-----"


JWT = ".".join(
    base64.urlsafe_b64encode(part).decode().rstrip("=")
    for part in (
        b'{"alg":"none","typ":"fake"}',
        b'{"sub":"nobody","for":"tests"}',
        b"made up signature",
    )
)
JWE = f"{'ey' + 'J' + fill(20)}..{fill(16)}.{fill(30)}.{fill(22)}"
GITHUB = "gh" + "p_" + fill(36)
BASIC = base64.b64encode(b"nobody:made-up-word").decode()

SHAPES: tuple[tuple[str, str], ...] = (
    ("private-key", armoured("RSA PRIVATE")),
    ("private-key", armoured("OPENSSH PRIVATE")),
    ("private-key", "AGE-SECRET-" + "KEY-1" + fill(58).upper()),
    ("jwt", JWT),
    ("jwt", JWE),
    ("aws", "AK" + "IA" + "FAKE0FAKE0FAKE0F"),
    ("aws", "AS" + "IA" + "FAKE0FAKE0FAKE0F"),
    ("aws", "AB" + "SK" + "QmVkcm9ja0FQSUtleS" + fill(100)),
    ("google", "AI" + "za" + fill(35)),
    ("google", "ya" + "29." + fill(60)),
    ("google", "GOC" + "SPX-" + fill(28)),
    ("azure", "abc" + "8Q" + "~" + fill(34)),
    ("github", "gh" + "p_" + fill(36)),
    ("github", "gh" + "o_" + fill(36)),
    ("github", "gh" + "s_" + fill(36)),
    ("github", "gh" + "u_" + fill(36)),
    ("github", "github" + "_pat_" + fill(22) + "_" + fill(59)),
    ("gitlab", "gl" + "pat-" + fill(20)),
    ("slack", "xo" + "xb-123456789012-" + fill(24)),
    ("slack", "xo" + "xp-123456789012-" + fill(24)),
    ("slack", "xa" + "pp-1-A0FAKE-1234567890-" + digits(30)),
    ("stripe", "sk" + "_live_" + fill(24)),
    ("stripe", "rk" + "_live_" + fill(24)),
    ("webhook-secret", "wh" + "sec_" + fill(14) + "+/" + fill(16)),
    ("anthropic", "sk-" + "ant-api03-" + fill(80)),
    ("openrouter", "sk-" + "or-v1-" + digits(64)),
    ("langfuse", "sk-" + "lf-fa4e0bad-0000-4000-8000-" + digits(12)),
    ("openai", "sk-" + fill(48)),
    ("openai", "sk-" + "proj-" + fill(100)),
    ("hugging-face", "h" + "f_" + fill(34)),
    ("groq", "gs" + "k_" + fill(52)),
    ("xai", "xa" + "i-" + fill(80)),
    ("perplexity", "pp" + "lx-" + fill(48)),
    ("replicate", "r" + "8_" + fill(37)),
    ("nvidia", "nv" + "api-" + fill(64)),
    ("cerebras", "cs" + "k-" + fill(48).lower()),
    ("together", "tg" + "p_v1_" + fill(43)),
    ("elevenlabs", "s" + "k_" + digits(48)),
    ("pinecone", "pc" + "sk_" + fill(60)),
    ("langsmith", "lsv" + "2_pt_" + digits(32) + "_" + digits(10)),
    ("tavily", "tv" + "ly-dev-" + fill(32)),
    ("firecrawl", "f" + "c-" + digits(32)),
    ("apify", "api" + "fy_api_" + fill(36)),
    ("databricks", "da" + "pi" + digits(32)),
    ("alibaba", "LT" + "AI" + fill(20)),
    ("tencent", "AK" + "ID" + fill(32)),
    ("digitalocean", "do" + "p_v1_" + digits(64)),
    ("heroku", "HR" + "KU-" + fill(40)),
    ("fly", "fo" + "1_" + fill(43)),
    ("supabase", "sb" + "p_" + digits(40)),
    ("netlify", "nf" + "p_" + fill(36)),
    ("neon", "na" + "pi_" + fill(60).lower()),
    ("planetscale", "psc" + "ale_tkn_" + fill(43)),
    ("shopify", "shp" + "at_" + digits(32)),
    ("square", "sq0" + "atp-" + fill(22)),
    ("sendgrid", "S" + "G." + fill(22) + "." + fill(43)),
    ("mailgun", "k" + "ey-" + digits(32)),
    ("resend", "r" + "e_" + fill(8) + "_" + fill(24)),
    ("telegram", "123456789" + ":A" + "A" + fill(33)),
    ("discord", "MT" + fill(24) + "." + fill(6) + "." + fill(38)),
    ("notion", "nt" + "n_" + fill(46)),
    ("notion", "sec" + "ret_" + fill(43)),
    ("linear", "lin" + "_api_" + fill(40)),
    ("figma", "fi" + "gd_" + fill(40)),
    ("atlassian", "ATA" + "TT3x" + fill(180) + "=FA4E0BAD"),
    ("airtable", "pa" + "t" + fill(14) + "." + digits(64)),
    ("postman", "PM" + "AK-" + digits(24) + "-" + digits(34)),
    ("doppler", "dp" + ".pt." + fill(43)),
    ("vault", "hv" + "s." + fill(90)),
    ("grafana", "gl" + "sa_" + fill(32) + "_" + digits(8)),
    ("grafana", "gl" + "c_ey" + "J" + fill(20) + "+/" + fill(20) + "="),
    ("new-relic", "NR" + "AK-" + fill(27).upper()),
    ("sentry", "snt" + "rys_" + fill(60) + "=_" + fill(40)),
    ("docker", "dck" + "r_pat_" + fill(27)),
    ("npm", "np" + "m_" + fill(36)),
    ("pypi", "py" + "pi-AgE" + fill(100)),
    ("rubygems", "ruby" + "gems_" + digits(48)),
    ("jfrog", "AK" + "Cp" + fill(69)),
    ("1password", "op" + "s_ey" + "J" + fill(200)),
    ("azure", fill(76) + "AZ" + "DO" + fill(4)),
    ("terraform", fill(14) + ".atlas" + "v1." + fill(67)),
    ("asana", "2/1234567890123456/1234567890123457" + ":" + digits(32)),
    ("asana", "1/1234567890123456" + ":" + digits(32)),
    ("vercel", "vc" + "p_" + fill(56)),
    ("hubspot", "pa" + "t-na1-fa4e0bad-0000-4000-8000-" + digits(12)),
    ("contentful", "CF" + "PAT-" + fill(43)),
    ("facebook", "EA" + "AB" + "ZCFakeZBNot0Real1" * 12),
    ("dropbox", "s" + "l.u." + fill(140)),
    ("fireworks", "f" + "w_" + fill(24)),
    ("mapbox", "s" + "k.ey" + "J" + fill(60) + "." + fill(22)),
    ("launchdarkly", "sd" + "k-fa4e0bad-0000-4000-8000-" + digits(12)),
    ("launchdarkly", "ap" + "i-fa4e0bad-0000-4000-8000-" + digits(12)),
    ("openai", "sk-" + "FakeNotRealMadeUp" * 3),
    ("vercel", "vc" + "k_" + fill(20) + "_-" + fill(34)),
    ("dropbox", "s" + "l.B" + fill(60) + "=" + fill(74)),
    ("dropbox", fill(11) + "A" * 10 + fill(43)),
    ("facebook", "123456789012345" + "|" + fill(27)),
    ("aws", "AB" + "IA" + "FAKE0FAKE0FAKE0F"),
    ("google", "1/" + "/0" + fill(60)),
    ("stripe", "sk" + "_org_live_" + fill(40)),
    ("openai", "se" + "ss-" + fill(40)),
    ("square", "EA" + "AA" + fill(60)),
    ("bitbucket", "AT" + "BB" + fill(32)),
    ("brevo", "xkey" + "sib-" + digits(64) + "-" + fill(16)),
    ("brave", "B" + "SA" + fill(27)),
    ("crates", "c" + "io" + fill(32)),
    ("e2b", "e2" + "b_" + digits(40)),
    ("jina", "ji" + "na_" + fill(60)),
    ("mailchimp", digits(32) + "-us" + "21"),
    ("posthog", "ph" + "x_" + fill(43)),
    ("pulumi", "pu" + "l-" + digits(40)),
    ("render", "rn" + "d_" + fill(28)),
    ("sourcegraph", "sg" + "p_" + digits(40)),
)
"""Secrets that their own shape tells, and the rule of each."""


def _rows_of(name: str) -> list[list[str]]:
    """Read the rows that have no shape in them, which are kept as lines of a file."""
    text = (DATA / "secrets" / name).read_text(encoding="utf-8")
    lines = text.replace("{GITHUB}", GITHUB).replace("{JWT}", JWT).splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


IN_CONTEXT: tuple[tuple[str, str, str], ...] = (
    *((rule, json.loads(it), json.loads(text)) for rule, it, text in _rows_of("in-context.tsv")),
    ("aws", fill(38) + "+/", "aws_secret_access_key = {}"),
    ("aws", fill(38) + "/+", 'export AWS_SECRET_ACCESS_KEY="{}"'),
    ("azure", fill(86) + "==", "AccountName=fake;AccountKey={};EndpointSuffix=core.windows.net"),
    ("azure", fill(43) + "=", "https://fake.blob.core.windows.net/c?sv=2024-01-01&sig={}&sp=r"),
    ("webhook", "T0FAKE000/B0FAKE000/" + fill(24), "https://hooks.slack.com/services/{}"),
    ("webhook", fill(68), "https://discord.com/api/webhooks/123456789012345678/{}"),
    (
        "webhook",
        f"{digits(8)}@{digits(8)}/IncomingWebhook/{digits(32)}",
        "https://fake.webhook.office.com/webhookb2/{}",
    ),
    ("webhook", "1234567/" + fill(7), "https://hooks.zapier.com/hooks/catch/{}"),
    ("twilio", "SK" + digits(32), "Twilio API key: {}"),
    ("basic", BASIC, "Authorization: Basic {}"),
    ("basic", BASIC, "basic {}"),
    ("bearer", fill(32), "Bearer {}"),
    (
        "bearer",
        "made.up~" + fill(12) + "==",
        "curl -H 'authorization: bearer {}' https://example.com",
    ),
    ("jwt", JWT, "Authorization: Bearer {}"),
    ("github", "gh" + "p_" + fill(36), "https://x-access-token:{}@github.com/fake/fake.git"),
    (
        "aws",
        digits(64),
        "AWS4-HMAC-SHA256 Credential=nobody/s3, SignedHeaders=host;x-amz-date, Signature={}",
    ),
    ("token", fill(24), "deploy --token {} --prod"),
    ("secret", fill(24), "deploy --client-secret {} --prod"),
    ("api-key", fill(24), "deploy --api-key '{}' --prod"),
    ("token", fill(24), "curl -H 'PRIVATE-TOKEN: {}' https://git.example.com/"),
    ("basic", BASIC, '{{"auths":{{"registry.example.com":{{"auth":"{}"}}}}}}'),
    ("token", fill(20), "CF_ZONE=x\nLINEAR_TOKEN={}\n"),
    ("token", fill(20), '{{"headers":{{"X-Vault-Token":"{}"}}}}'),
    ("secret", fill(20), '[{{"name":"STRIPE_SECRET","value":"{}"}}]'),
    ("url-password", fill(24), "https://{}@git.example.com/owner/repo.git"),
    ("url-password", fill(24), "https://{}:x-oauth-basic@git.example.com/owner/repo.git"),
    ("url-password", fill(24), "https://{}:@api.example.com/v1"),
    ("token", fill(30), "token: {}\n"),
    ("token", fill(22), "https://app.example.com/cb?code={}"),
    (
        "secret",
        fill(18),
        "https://d111.cloudfront.net/a.jpg?Expires=1767225600&Signature={}&Key-Pair-Id=K2FAKE",
    ),
    ("secret", fill(27) + "=", "https://s3.example.com/b/k?Signature={}"),
    ("cookie", "session=" + fill(24), "curl -b '{}' https://a.example"),
    ("secret", fill(24), "production:\n  secret_key_base: {}\n"),
    ("authorization", fill(24), "Authorization: SSWS {}"),
    ("telegram", "1234567890:" + fill(35), "https://api.telegram.org/bot{}/getMe"),
)
"""Secrets that the text around them tells: rule, secret, and the text with a hole for it."""


def _shaped() -> list[Planted]:
    rows = []
    for index, (rule, secret) in enumerate(SHAPES):
        place = JSON_PLACES[index % len(JSON_PLACES)]
        raw = json.dumps({"note": f"it is {secret}, keep it", "list": [secret]})
        rows.append(Planted(f"{rule} {index} in {place.value}", place, raw, secret, rule))
    for index, (rule, secret, text) in enumerate(IN_CONTEXT):
        place = JSON_PLACES[index % len(JSON_PLACES)]
        raw = json.dumps(text.format(secret))
        rows.append(Planted(f"{rule} context {index} in {place.value}", place, raw, secret, rule))
    return rows


def _named() -> list[Planted]:
    names = {
        "password": "password Password PASSWORD passwd passphrase dbPassword DB_PASSWORD new-password",
        "secret": "secret client_secret clientSecret CLIENT-SECRET secretAccessKey aws_secret_access_key",
        "api-key": "api_key apiKey apikey API-KEY x-api-key X-Api-Key openaiApiKey OPENAI_API_KEY",
        "token": "access_token accessToken refresh_token id_token auth_token session_token bearerToken",
        "authorization": "authorization Authorization Proxy-Authorization",
        "cookie": "cookie Set-Cookie set_cookie",
        "private-key": "private_key privateKey",
        "credentials": "credentials Credential",
    }
    rows = []
    for rule, spelled in names.items():
        for index, name in enumerate(spelled.split()):
            place = JSON_PLACES[index % len(JSON_PLACES)]
            raw = json.dumps({name: f"made up {index}", "other": "stays"})
            rows.append(Planted(f"{name} in {place.value}", place, raw, f"made up {index}", rule))
    return rows


def _number(name: str, place: Place, raw: str) -> Planted:
    return Planted(name, place, raw, "8675309", "password-number")


def _lines() -> list[Planted]:
    """Return passwords on lines of YAML: those of a Kubernetes Secret are base64 of anything."""
    encoded = [f"cnZnWUJHamY= cUtMenQzbTY= VGFnaEpnNERmVVlp ZWRaNmRqOUczeFZw {_base64('letmein')}"]
    values = [*" ".join(encoded).split(), "$uper5ecret", "Hunter2(horse9)", "Hunter2horse9"]
    return [
        Planted(
            f"{value} on a line",
            Place.RESULT,
            json.dumps({"text": f"data:\n  password: {value}{end}\n  username: YWRtaW4=\n"}),
            value,
            "password",
        )
        for value, end in zip(values, [""] * (len(values) - 1) + [","], strict=True)
    ]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _ambiguous() -> list[Planted]:
    """Return values under names that also mean harmless things."""
    rows = (
        ("pin", "90441773", "password", {}),
        ("PIN", "904417732206", "password", {}),
        ("otp", "73190544", "password", {}),
        ("totp", "7319054402", "password", {}),
        ("pwd", "made-up", "password", {}),
        ("pass", "hunter2", "password", {}),
        ("pass", "letmein", "password", {"username": "nobody"}),
        ("token", fill(24), "token", {}),
        ("token", "made-up1", "token", {"token_type": "opaque"}),
        ("code", fill(24), "token", {}),
        ("code", "made-up1", "token", {"grant_type": "authorization_code"}),
        ("code", "made-up1", "token", {"redirect_uri": "https://example.com/cb"}),
        ("device_code", "madeup", "token", {"user_code": "ABCD-EFGH", "interval": 5}),
        ("deviceCode", fill(40), "token", {}),
        ("assertion", fill(40), "token", {}),
        ("assertion", "madeup", "token", {"grantType": "x"}),
        ("id_token_hint", "made up", "token", {}),
        ("SAMLResponse", "made up", "token", {}),
        ("csrfToken", "made up", "token", {}),
        ("X-CSRF-Token", "made up", "token", {}),
        ("_csrf", fill(24), "token", {}),
    )
    planted = []
    for index, (name, secret, rule, beside) in enumerate(rows):
        place = JSON_PLACES[index % len(JSON_PLACES)]
        companion = next(iter(beside), "")
        first = {**beside, name: secret} if index % 2 else {name: secret, **beside}
        raw = json.dumps({"other": "stays", "inner": first})
        planted.append(Planted(f"ambiguous {index} {name}", place, raw, secret, rule, companion))
        # The same in the text of a string, and as a form.
        raw = json.dumps(json.dumps(first))
        planted.append(
            Planted(f"ambiguous {index} {name} in text", place, raw, secret, rule, companion)
        )
        form = urlencode({"a": "b", **first})
        planted.append(
            Planted(f"ambiguous {index} {name} form", Place.FORM, form, secret, rule, companion)
        )
    return planted


def _encoded_twice() -> list[Planted]:
    """Return what is percent-encoded more than once."""
    once = quote(f"https://example.com/cb?k={GITHUB}".replace("_", "%5F"), safe="")
    named = quote(quote("/cb?access_token=made-up", safe=""), safe="")
    return [
        Planted("twice in a target", Place.TARGET, f"/go?to={once}", GITHUB, "github"),
        Planted("thrice in a target", Place.TARGET, f"/go?to={quote(once)}", GITHUB, "github"),
        Planted("name twice in a target", Place.TARGET, f"/go?to={named}", "made-up", "token"),
        Planted("name twice in a form", Place.FORM, f"to={named}&a=b", "made-up", "token"),
        Planted("twice in JSON", Place.RESULT, json.dumps(f"see {once}."), GITHUB, "github"),
        Planted("name twice in JSON", Place.RESULT, json.dumps(named), "made-up", "token"),
        Planted(
            "escaped name twice in a query",
            Place.TARGET,
            "/mcp?api%255Fkey=made-up&v=1",
            "made-up",
            "api-key",
        ),
        Planted(
            "escaped value twice in a query",
            Place.TARGET,
            f"/mcp?k={GITHUB.replace('_', '%255F')}",
            GITHUB,
            "github",
        ),
    ]


def _blob(name: str, place: Place, text: str, rule: str, member: str = "blob") -> Planted:
    blob = _base64(text)
    raw = json.dumps({"contents": [{"uri": "file:///a", member: blob}]})
    return Planted(name, place, raw, blob, rule)


PLANTED: tuple[Planted, ...] = (
    *_shaped(),
    *_named(),
    *_ambiguous(),
    *_encoded_twice(),
    *_lines(),
    *(
        Planted(f"line {number} of planted", Place(place), raw, json.loads(secret), rule)
        for number, (place, rule, secret, raw) in enumerate(_rows_of("planted.tsv"))
    ),
    _blob("blob", Place.RESULT, f"{GITHUB}\n", "github"),
    _blob("blob with a name", Place.EVENT, "HOST=db\nDB_PASSWORD=made-up\n", "password"),
    _blob("blob of JSON", Place.ARGUMENTS, '{"user": "nobody", "apiKey": "made up"}', "api-key"),
    _blob("blob of a key file", Place.RESULT, armoured("PRIVATE"), "private-key"),
    _blob("blob with a mark", Place.RESULT, "\ufeffpassword=made-up\n", "password"),
    _blob("data", Place.RESULT, f"the key is {GITHUB}", "github", member="data"),
    Planted(
        "escaped key",
        Place.RESULT,
        json.dumps({GITHUB: 1}).replace("_", "\\u005F"),
        GITHUB,
        "github",
    ),
    _number("number under a name", Place.ARGUMENTS, '{"password":8675309}'),
    _number("number in nested JSON", Place.RESULT, r'"{\"password\": 8675309 }"'),
    Planted(
        "escaped underscore",
        Place.ARGUMENTS,
        json.dumps(GITHUB).replace("_", "\\u005f"),
        GITHUB,
        "github",
    ),
    Planted(
        "escaped hyphen",
        Place.RESULT,
        json.dumps("key sk-" + "ant-" + fill(40)).replace("-", "\\u002D"),
        "sk-" + "ant-" + fill(40),
        "anthropic",
    ),
    Planted(
        "key file in nested JSON",
        Place.ARGUMENTS,
        json.dumps(json.dumps({"file": armoured("PRIVATE")})),
        armoured("PRIVATE"),
        "private-key",
    ),
    Planted(
        "second line of JSON lines",
        Place.MESSAGE,
        '{"jsonrpc":"2.0","method":"a"}\n{"jsonrpc":"2.0","method":"b","params":{"secret":"made-up"}}\n',
        "made-up",
        "secret",
    ),
    Planted(
        "key file in a form",
        Place.FORM,
        urlencode({"k": armoured("PRIVATE")}),
        armoured("PRIVATE"),
        "private-key",
    ),
    Planted(
        "settings", Place.TEXT, "HOST=example.com\nDB_PASSWORD=made-up\n", "made-up", "password"
    ),
    Planted(
        "escaped shape in a query",
        Place.TARGET,
        f"/mcp?k={GITHUB.replace('g', '%67').replace('_', '%5F')}",
        GITHUB,
        "github",
    ),
    Planted(
        "shape in a path",
        Place.TARGET,
        f"/bot123456789:AA{fill(33)}/getMe",
        f"123456789:AA{fill(33)}",
        "telegram",
    ),
    Planted(
        "base64 of JSON in a query",
        Place.TARGET,
        "/mcp?config=" + _base64('{"region":"eu","apiKey":"made-up"}').replace("=", "%3D"),
        _base64('{"region":"eu","apiKey":"made-up"}'),
        "api-key",
    ),
    Planted(
        "encoded header",
        Place.HEADER,
        encoded_header(f"é {GITHUB}"),
        GITHUB,
        "github",
    ),
)

_UUID = "3f2b8c1e-9d47-4c55-8a1b-0e6f7d2c9a10"
_SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_BLOB = base64.b64encode(bytes(range(256)) * 2).decode()
_URL_BLOB = base64.urlsafe_b64encode(bytes(range(256)) * 2).decode()
_SCHEMA = {
    "type": "object",
    "properties": {
        "password": {"type": "string", "title": "Password", "minLength": 8, "format": "password"},
        "api_key": {"type": ["string", "null"], "description": "your API key"},
        "accept": {"type": "boolean"},
    },
    "required": ["password", "api_key"],
    "dependentRequired": {"password": ["user"], "api_key": ["region"]},
}


def _text(name: str, text: str) -> Planted:
    return Planted(name, Place.RESULT, json.dumps({"text": text}))


def _from_file() -> list[Planted]:
    """Read the look-alikes that are kept as lines of a file."""
    rows = []
    text = (DATA / "secrets" / "look-alikes.txt").read_text(encoding="utf-8")
    lines = text.replace("{GITHUB}", GITHUB).replace("{JWT}", JWT).splitlines()
    for number, line in enumerate(lines, start=1):
        place, _, raw = line.partition(" ")
        if raw and place != "#":
            where = Place.RESULT if place == "json" else Place(place)
            rows.append(Planted(f"line {number} of look-alikes", where, raw))
    return rows


LOOK_ALIKES: tuple[Planted, ...] = (
    _text("cursor", base64.b64encode(b'{"offset":10,"id":"a1b2c3"}').decode()),
    Planted("base64 of plain JSON in a query", Place.TARGET, "/a?at=eyJvZmZzZXQiOjEwfQ=="),
    _text("short three parts", "eyJ.eyJ.abc"),
    _text("public key", armoured("PUBLIC")),
    _text("certificate", armoured("CERTIFICATE")),
    _text("public SSH key", f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5{fill(40)} nobody@example.com"),
    _text("Twilio-like without its name", "SK" + digits(32)),
    Planted(
        "id after accents",
        Place.MESSAGE,
        '\ufeff {"é🔑":"é","id":"SHAPE","jsonrpc":"2.0","result":{"requestState":"SHAPE"}}'.replace(
            "SHAPE", JWT
        ),
    ),
    Planted(
        "ids of JSON lines",
        Place.MESSAGE,
        '{"jsonrpc":"2.0","id":"SHAPE"}\n{"jsonrpc":"2.0","id":"SHAPE"}\n'.replace("SHAPE", GITHUB),
    ),
    Planted(
        "text with colons",
        Place.TEXT,
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<b>secret: no</b>",
    ),
    Planted("encoded header", Place.HEADER, encoded_header("é")),
    *_from_file(),
)
"""What looks like a secret to a careless rule, and must stay byte for byte."""

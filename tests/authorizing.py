"""A server that wants a token, and is its own authorization server: small, and strict.

It refuses whoever names another resource than itself, as RFC 8707 has it.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass, field
from string import ascii_letters
from urllib.parse import parse_qsl, urlencode, urlsplit

from messages import JsonObject
from standin import Visit, json_response, response

WELL_KNOWN = "/.well-known/"


@dataclass
class Guarded:
    """The script of one such server.

    Attributes:
        authority_elsewhere: the authorization server that it names in its own place.
        metadata: where its document about the resource is.
        issued: all codes, tokens and secrets that it has issued.
        made_up: those that clients have made up.
    """

    authority_elsewhere: str = ""
    metadata: str = f"{WELL_KNOWN}oauth-protected-resource/mcp"
    issued: list[str] = field(default_factory=list)
    made_up: list[str] = field(default_factory=list)
    _challenges: dict[str, str] = field(default_factory=dict)
    _token: str = ""

    async def __call__(self, visit: Visit) -> None:
        """Answer one request."""
        method, target, _ = visit.request.head.line.split()
        (host,) = visit.request.head.values("host")
        url = urlsplit(target)
        origin = f"http://{host}"
        asked = dict(parse_qsl(url.query or visit.request.body.decode()))
        if target == self.metadata:
            servers = [self.authority_elsewhere or origin]
            told = {"resource": f"{origin}/mcp", "authorization_servers": servers}
            await visit.send(json_response(told))
        elif url.path.startswith(WELL_KNOWN):
            await visit.send(json_response(_about_authority(origin)))
        elif url.path == "/register":
            self._issue("client-secret")
            told = {
                **visit.request.json,
                "client_id": "client-1",
                "client_secret": self.issued[-1],
            }
            await visit.send(json_response(told, status="201 Created"))
        elif url.path == "/authorize":
            await visit.send(self._authorize(asked, origin))
        elif url.path == "/token":
            await visit.send(self._exchange(asked, origin))
        elif method == "POST":
            await visit.send(self._serve(visit, origin))
        else:
            await visit.send(response(status="405 Method Not Allowed"))

    def _issue(self, kind: str) -> str:
        # Letters alone look least like a secret.
        letters = "".join(secrets.choice(ascii_letters) for _ in range(32))
        self.issued.append(f"{kind}-{letters}")
        return self.issued[-1]

    def _authorize(self, asked: JsonObject, origin: str) -> bytes:
        assert asked["resource"] == f"{origin}/mcp"
        self.made_up += [asked["state"], asked["code_challenge"]]
        code = self._issue("code")
        self._challenges[code] = asked["code_challenge"]
        query = urlencode({"code": code, "state": asked["state"], "iss": origin})

        return response(
            b"", f"Location: {asked['redirect_uri']}?{query}", status="302 Found"
        )

    def _exchange(self, asked: JsonObject, origin: str) -> bytes:
        assert asked["resource"] == f"{origin}/mcp"
        self.made_up.append(asked["code_verifier"])
        digest = hashlib.sha256(asked["code_verifier"].encode()).digest()
        assert (
            base64.urlsafe_b64encode(digest).decode().rstrip("=")
            == self._challenges[asked["code"]]
        )

        self._token = self._issue("access")
        return json_response(
            {
                "access_token": self._token,
                "token_type": "Bearer",
                "expires_in": 3600,
                "refresh_token": self._issue("refresh"),
            }
        )

    def _serve(self, visit: Visit, origin: str) -> bytes:
        if not self._token or f"Bearer {self._token}" not in visit.request.head.values(
            "authorization"
        ):
            metadata = f"{origin}{self.metadata}"
            challenge = f'WWW-Authenticate: Bearer error="invalid_token", resource_metadata="{metadata}"'
            return response(b"", challenge, status="401 Unauthorized")

        body = visit.request.json
        if "id" not in body:
            return response(status="202 Accepted")

        results = {
            "server/discover": {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
            },
            "tools/list": {
                "tools": [{"name": "whoami", "inputSchema": {"type": "object"}}],
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
            },
            "tools/call": {
                "content": [{"type": "text", "text": f"you; docs at {origin}/docs"}],
                "isError": False,
                "resultType": "complete",
            },
        }
        return json_response(
            {"jsonrpc": "2.0", "id": body["id"], "result": results[body["method"]]}
        )


def _about_authority(origin: str) -> JsonObject:
    return {
        "issuer": origin,
        "authorization_endpoint": f"{origin}/authorize",
        "token_endpoint": f"{origin}/token",
        "registration_endpoint": f"{origin}/register",
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }

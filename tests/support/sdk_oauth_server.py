"""An MCP server with a login, made of the SDK's own server side: authorization server and resource at one origin.

Access and refresh tokens are bound to the resource. A refresh token is used once; one that is used again ends the whole
login, as RFC 9700, section 4.14.2, wants it.
"""

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

Code = AuthorizationCode


@dataclass
class Grants(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """What the server has given out. Tests change it."""

    origin: str
    expires_in: int = 3600
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    access: dict[str, AccessToken] = field(default_factory=dict)
    refresh: dict[str, RefreshToken] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    """Refresh tokens that were exchanged."""
    issued: list[str] = field(default_factory=list)
    """Every token and secret that was ever given out."""
    reused: list[str] = field(default_factory=list)
    renewing: Callable[[], None] = lambda: None
    """Called in a thread of its own after a refresh token was used, before the answer is sent."""
    foreign: bool = False
    """Tokens are for another resource."""

    @property
    def url(self) -> str:
        """Address of the MCP server."""
        return f"{self.origin}/mcp"

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info
        if client_info.client_secret:
            self.issued.append(client_info.client_secret)

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(32)
        self.codes[code] = AuthorizationCode(
            code=code,
            client_id=client.client_id,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client: OAuthClientInformationFull, authorization_code: str) -> Code | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        if refresh_token in self.used:
            self.reused.append(refresh_token)
            self.access.clear()
            self.refresh.clear()
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        self.used.add(refresh_token.token)
        tokens = self._tokens(client.client_id, scopes, refresh_token.resource)
        await asyncio.to_thread(self.renewing)
        return tokens

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.clear()
        self.refresh.clear()

    def _tokens(self, client: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = (f"{kind}-{secrets.token_urlsafe(24)}" for kind in ("access", "refresh"))
        self.issued += [access, refresh]
        resource = "https://other.example/mcp" if self.foreign else resource
        ends = int(time.time()) + max(self.expires_in, 0) + 60
        self.access[access] = AccessToken(
            token=access, client_id=client, scopes=scopes, expires_at=ends, resource=resource
        )
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes, resource=resource)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=self.expires_in)


@contextmanager
def serving() -> Iterator[Grants]:
    """Serve for as long as the block runs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        grants = Grants(origin)
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(origin),
            client_registration_options=ClientRegistrationOptions(enabled=True),
            resource_server_url=AnyHttpUrl(f"{origin}/mcp"),
            validate_token_resource=True,
        )
        mcp: MCPServer[Any] = MCPServer("s", auth_server_provider=grants, auth=settings)

        @mcp.tool()
        def whoami() -> str:
            """Says it."""
            return "you"

        server = uvicorn.Server(uvicorn.Config(mcp.streamable_http_app(), log_level="critical", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield grants
        finally:
            server.should_exit = True
            thread.join()

"""The web server of the desk: routes, logins and forms.

Theory of operation

The page has one address. On the loopback interface that is a random name below ``localhost``, which browsers resolve
by themselves: cookies do not know ports, so a server of another user under the same name would get ours. Anywhere else
it is the name of ``--url``, over TLS. A request for any other name is refused (`serve.guard`).

Every page works without script. `/events` tells a script that something has changed (`serve.live`): the script loads
the page again, under the same login. A change is a POST with the cookie, the login's form token, our Origin and the
digest that was shown, and is answered with a redirect, so that loading a page again repeats nothing.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import parse_qs, quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from chatops.domain.errors import ChatopsError
from chatops.domain.wording import plural
from chatops.runtime.services import WorkerThread
from chatops.serve.desk import Desk
from chatops.serve.guard import Address, Guard
from chatops.serve.live import LiveUpdates
from chatops.serve.logins import Login, Logins, RefusedError, TooManyError, may_change
from chatops.serve.pages import FOLDER, MAX_TICKS, render_page

log = logging.getLogger(__name__)

POLL_JOBS_S = 5.0
"""Seconds between two looks for jobs that were decided and not started, where anything has changed."""
MAX_FORM_BYTES = 64_000
"""More than the longest reason and all ticks take."""
FORM_S = 8.0
"""Seconds in which a form has to come whole."""
STATIC = {"style.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}


class PageServer:
    """The routes, and what the requests share."""

    def __init__(
        self,
        desk: Desk,
        address: Address,
        logins: Logins,
        *,
        behind_proxy: bool,
        ending: asyncio.Event,
        say: Callable[[str], None],
    ):
        self._desk = desk
        self._say = say
        self._address = address
        self._logins = logins
        self._behind_proxy = behind_proxy
        self._ending = ending
        self._worker = WorkerThread()
        self._live = LiveUpdates(desk, self._worker, logins, ending=ending)
        self._files = {name: (FOLDER / name).read_bytes() for name in STATIC}

    def application(self) -> Guard:
        """Return the ASGI application."""
        routes = [
            Route("/", self._show_list),
            Route("/call/{call}", self._show_call),
            Route("/call/{call}", self._decide, methods=["POST"]),
            Route("/login/{token}", self._show_login),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
            Route("/events", self._send_events),
            *(Route(f"/{name}", self._send_file) for name in STATIC),
        ]
        app = Starlette(
            routes=routes,
            exception_handlers={HTTPException: self._answer_http_error, ChatopsError: self._answer_chatops_error},
        )
        app.router.redirect_slashes = False
        return Guard(app, self._address)

    async def aclose(self) -> None:
        """Stop looking for changes, and end the thread."""
        self._live.close()
        self._worker.close()

    # Pages

    async def _show_list(self, request: Request) -> Response:
        login = self._require_login(request)
        overview = await self._worker(self._desk.overview)
        title = f"{plural(overview.waiting, 'call')} waiting" if overview.waiting else "Nothing is waiting"
        return self._render("list.html", login, overview=overview, title=title)

    async def _show_call(self, request: Request) -> Response:
        return await self._call_response(request.path_params["call"], self._require_login(request))

    async def _call_response(self, call_id: str, login: Login, *, note: str = "", status: int = 200) -> Response:
        call = await self._worker(self._desk.call, call_id)
        if call is None:
            raise _NoCallError(404, "There is no such call. It may have been decided, or its session deleted.")
        title = "Decided" if call.page is None or call.decided else call.page.question
        # A call of a million lines takes seconds, in which others get their pages.
        return await asyncio.to_thread(
            self._render, "call.html", login, status=status, call=call, note=note, title=title
        )

    async def _decide(self, request: Request) -> Response:
        login = self._require_login(request)
        form = await self._checked_form(request, login)
        call_id = request.path_params["call"]
        try:
            await self._worker(
                self._desk.decide,
                call_id,
                form.get("answer", ""),
                digest=form.get("digest", ""),
                state=form.get("state", ""),
                ticked=form.get("only", ""),
                reason=form.get("reason", ""),
                place=f"browser page {self._address.short}, {login}",
            )
        except ChatopsError as error:
            return await self._call_response(call_id, login, note=str(error), status=409)
        self._live.look_again()
        return RedirectResponse(f"/call/{quote(call_id, safe='')}", status_code=303)

    async def _send_file(self, request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        return Response(self._files[name], headers={"content-type": STATIC[name]})

    async def _send_events(self, request: Request) -> Response:
        return self._live.stream(self._require_login(request))

    # Logins

    async def _show_login(self, request: Request) -> Response:
        return self._render("login.html", None, token=request.path_params["token"], title="Log in", referrer=False)

    async def _log_in(self, request: Request) -> Response:
        # The page with the link has no Origin to send: the token itself proves where the form came from.
        if request.headers.get("origin", "null") not in ("null", self._address.origin):
            raise HTTPException(403, "This form came from another site. Open the link again.")
        form = await _read_form(request)
        try:
            cookie = self._logins.log_in(form.get("token", ""), client=self._client_address(request))
        except TooManyError as error:
            return self._text_page(429, str(error), headers={"retry-after": "60"})
        except RefusedError as error:
            advice = "Press Enter where chatops serve runs, and open the new one. It says there who has logged in."
            return self._text_page(403, f"{error} {advice}")
        # Somebody else who has seen the link could be first.
        self._say(f"{str(self._logins.find(cookie)).capitalize()}. If that was not you: Ctrl+C ends all logins.")
        return RedirectResponse("/", status_code=303, headers={"set-cookie": self._cookie_header(cookie)})

    async def _log_out(self, request: Request) -> Response:
        await self._checked_form(request, self._require_login(request))
        self._logins.log_out(request.cookies.get(self._address.cookie, ""))
        response = self._text_page(
            200, "You are logged out. Another link logs in: press Enter where chatops serve runs."
        )
        response.headers["set-cookie"] = f"{self._cookie_header('')}; Max-Age=0"
        return response

    def _cookie_header(self, value: str) -> str:
        secure = "; Secure" if self._address.secure else ""
        return f"{self._address.cookie}={value}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def _require_login(self, request: Request) -> Login:
        """Return the login of a request. Raises HTTPException."""
        login = self._logins.find(request.cookies.get(self._address.cookie, ""))
        if login is None:
            raise HTTPException(401)
        return login

    def _client_address(self, request: Request) -> str:
        """Return the address that asks. Only a proxy that was announced is believed about it."""
        # Some proxies add a header of their own below the one that the client has sent. The last word is theirs.
        forwarded = ",".join(request.headers.getlist("x-forwarded-for")) if self._behind_proxy else ""
        try:
            # A zone is free text, and would stand in the log of decisions.
            return str(ip_address(forwarded.rpartition(",")[2].partition("%")[0].strip()))
        except ValueError:
            return request.client.host if request.client else ""

    async def _checked_form(self, request: Request, login: Login) -> dict[str, str]:
        """Return the fields of a form that this login was given. Raises HTTPException for any other."""
        if request.headers.get("origin") != self._address.origin:
            raise HTTPException(403, "Nothing was changed: this form came from another site.")
        form = await _read_form(request)
        if not may_change(login, form.get("form_token", "")):
            raise HTTPException(403, "Nothing was changed: this form belongs to another login. Load the page again.")
        return form

    # Jobs

    async def start_jobs_while_open(self) -> None:
        """Start jobs that were decided and not started, until the server ends."""
        seen: int | None = None
        while not self._ending.is_set():
            try:
                if (number := await self._worker(self._desk.data_version)) != seen:
                    seen = number
                    await self._worker(self._desk.start_decided_jobs)
            except ChatopsError as error:
                log.warning("jobs could not be looked at: %s", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), POLL_JOBS_S)

    # Errors

    async def _answer_http_error(self, request: Request, error: Exception) -> Response:
        """Answer a request that is refused, or that leads nowhere."""
        assert isinstance(error, HTTPException)
        if error.status_code != 401:
            # Starlette's own words for these say nothing of the page.
            texts = {404: "There is no such page.", 405: "That cannot be done here."}
            text = error.detail if isinstance(error, _NoCallError) else texts.get(error.status_code, error.detail)
            return self._text_page(error.status_code, text)
        if request.url.path == "/events":
            return Response("Log in first.\n", 401, media_type="text/plain")
        # The cookie is not sent with a link from another site. The same link from here brings it.
        site = request.headers.get("sec-fetch-site", "")
        from_elsewhere = request.method == "GET" and site not in ("same-origin", "none")
        path = quote(request.url.path)
        text = "Log in first: open the link that chatops serve has printed. Enter prints another one."
        return self._render(
            "message.html", None, status=401, title="Log in", text=text, ahead=path if from_elsewhere else ""
        )

    async def _answer_chatops_error(self, request: Request, error: Exception) -> Response:
        advice = error.advice if isinstance(error, ChatopsError) else ""
        return self._text_page(503, f"{error} {advice}")

    def _text_page(self, status: int, text: str, *, headers: dict[str, str] | None = None) -> Response:
        response = self._render("message.html", None, status=status, title="chatops", text=text, ahead="")
        response.headers.update(headers or {})
        return response

    def _render(
        self, name: str, login: Login | None, *, status: int = 200, title: str, referrer: bool = True, **values: object
    ) -> Response:
        html = render_page(name, login=login, title=title, **values)
        return HTMLResponse(html, status, headers={} if referrer else {"referrer-policy": "no-referrer"})


class _NoCallError(HTTPException):
    """The address is that of a call which is not there."""


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form, those of one name joined by spaces.

    Raises HTTPException if it is too large, too slow or none.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HTTPException(415, "This is no form of this page.")
    body = b""
    try:
        async with asyncio.timeout(FORM_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_FORM_BYTES:
                    raise HTTPException(413, "Nothing was changed: the text is too long.")
    except TimeoutError:
        raise HTTPException(408, "Nothing was changed: the form did not come whole.") from None
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_TICKS + 20, errors="replace")
    except ValueError:
        raise HTTPException(400, "This is no form of this page.") from None
    return {name: " ".join(values) for name, values in fields.items()}

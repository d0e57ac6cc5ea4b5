"""The gate of the web page in front of an application that says what it was given."""

import json

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from whyformer.app.gate import Gate
from whyformer.app.hosts import page_hosts
from whyformer.app.limits import Limits
from whyformer.app.quota import UploadQuota

LOCAL = {"host": "127.0.0.1:7860"}


def question(text=""):
    """A question of the right form."""
    return json.dumps({"data": [text], "fn_index": 11, "session_hash": "we"}).encode()


async def echo(request):
    return JSONResponse({"body": (await request.body()).decode("latin-1")})


def gated(hosts=None, limits=None):
    """A client of the gate."""
    limits = limits or Limits()
    hosts, quota = hosts or page_hosts("127.0.0.1"), UploadQuota(limits)
    gate = Middleware(Gate, hosts=hosts, limits=limits, quota=quota, inputs={11: [None]})
    routes = [Route("/{path:path}", echo, methods=["GET", "POST"])]
    return TestClient(Starlette(routes=routes, middleware=[gate]))

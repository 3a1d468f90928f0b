"""Authentication: two tenants with a key each. Each sees its own threads.

A token `until-MS-401-of-NAME` is good for a tenant until that moment, in milliseconds since 1970. Then it is refused
with 401 or 403, or with 404 belongs to a tenant without threads.
"""

import re
import time
from uuid import UUID, uuid5

from langgraph_sdk import Auth

auth = Auth()
TENANTS = {"key-of-alice": "alice", "key-of-bob": "bob"}
TOKEN = re.compile(r"until-(?P<until>\d+)-(?P<then>401|403|404)-of-(?P<tenant>alice|bob)")
HIDDEN = {"bob": ("slow",)}  # the graphs that a tenant is not shown
NAMESPACE_GRAPH = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")  # of the ids of the graphs' own assistants


@auth.authenticate
async def authenticate(headers: dict) -> dict:
    key = headers.get(b"x-api-key") or headers.get("x-api-key") or b""
    key = key.decode() if isinstance(key, bytes) else key
    if token := TOKEN.fullmatch(key):
        if time.time() * 1000 < int(token["until"]):
            return {"identity": token["tenant"]}
        if token["then"] == "404":
            return {"identity": "nobody"}
        raise Auth.exceptions.HTTPException(status_code=int(token["then"]), detail="the token has expired")
    tenant = TENANTS.get(key)
    if tenant is None:
        raise Auth.exceptions.HTTPException(status_code=401, detail="bad key")
    return {"identity": tenant}


@auth.on
async def own(ctx: Auth.types.AuthContext, value: dict) -> dict:
    """Marks a tenant's threads with their owner, and finds no others."""
    value.setdefault("metadata", {})["owner"] = ctx.user.identity
    return {"owner": ctx.user.identity}


@auth.on.assistants
async def shared(ctx: Auth.types.AuthContext, value: dict) -> dict | None:
    """Each tenant may use all agents, except those that are hidden from it."""
    for graph in HIDDEN.get(ctx.user.identity, ()):
        if value.get("graph_id") == graph or str(value.get("assistant_id")) == str(uuid5(NAMESPACE_GRAPH, graph)):
            return {"shown_to": "nobody"}
    return None

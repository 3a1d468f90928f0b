"""Who may use the server: two tenants by their keys, each of whom sees the threads that are its own."""

from langgraph_sdk import Auth

auth = Auth()
TENANTS = {"key-of-alice": "alice", "key-of-bob": "bob"}


@auth.authenticate
async def authenticate(headers: dict) -> dict:
    key = headers.get(b"x-api-key") or headers.get("x-api-key") or b""
    tenant = TENANTS.get(key.decode() if isinstance(key, bytes) else key)
    if tenant is None:
        raise Auth.exceptions.HTTPException(status_code=401, detail="bad key")
    return {"identity": tenant}


@auth.on
async def own(ctx: Auth.types.AuthContext, value: dict) -> dict:
    """Marks what a tenant makes, and finds nothing else."""
    value.setdefault("metadata", {})["owner"] = ctx.user.identity
    return {"owner": ctx.user.identity}


@auth.on.assistants
async def shared(ctx: Auth.types.AuthContext, value: dict) -> None:
    """Every tenant may use every agent."""

//! The network to LangGraph, and LangGraph's own checks of who may see which thread.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

use crate::sync::simulated::{self, Chance};

/// The wall time of the demo at the beginning of each schedule.
pub(super) const BEGAN: Duration = Duration::from_secs(1_795_323_984);

/// What the network does wrong. Shared by all that is simulated.
#[derive(Clone)]
pub(super) struct Network(Arc<Mutex<Faults>>);

pub(super) struct Faults {
    chance: Chance,
    /// How many faults are still to come.
    left: u64,
    /// Whether one has come.
    has_failed: bool,
    /// A request in so many meets a fault of the connection.
    rarity: u64,
    /// The longest delay of a chunk, in milliseconds.
    delay: u64,
    /// Which callers may see each thread.
    pub(super) seen_by: BTreeMap<String, Vec<&'static str>>,
    /// The threads that clients asked for, and with which key.
    pub(super) shown: Vec<(String, String)>,
}

impl Network {
    pub(super) fn new(seen_by: BTreeMap<String, Vec<&'static str>>) -> Self {
        let mut chance = simulated::chance();
        let left = if chance.one_of(3) { 0 } else { chance.below(8) };
        let rarity = 3 + chance.below(20);
        let delay = [1, 20, 400][usize::try_from(chance.below(3)).unwrap()];
        let (has_failed, shown) = (false, vec![]);
        let faults = Faults { chance, left, has_failed, rarity, delay, seen_by, shown };
        Self(Arc::new(Mutex::new(faults)))
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on nothing goes wrong.
    pub(super) fn heal(&self) {
        self.faults().left = 0;
    }

    /// Whether anything has gone wrong.
    pub(super) fn has_failed(&self) -> bool {
        self.faults().has_failed
    }

    fn has_fault(&self) -> bool {
        let mut faults = self.faults();
        let rarity = faults.rarity;
        let has = faults.left > 0 && faults.chance.one_of(rarity);
        faults.left -= u64::from(has);
        faults.has_failed |= has;
        has
    }

    fn chance(&self) -> Chance {
        Chance::new(self.faults().chance.next())
    }

    /// Connects to a server with these routes.
    pub(super) fn dial(&self, routes: &Router) -> io::Result<DuplexStream> {
        if self.has_fault() {
            simulated::note(|| "connection refused".to_owned());
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (client, near) = tokio::io::duplex(1 << 16);
        let (far, server) = tokio::io::duplex(1 << 16);
        let (network, routes) = (self.clone(), routes.clone());
        simulated::start("cable", async move { network.carry(near, far).await });
        simulated::start("langgraph connection", async move {
            let service = TowerToHyperService::new(routes);
            let mut http1 = http1::Builder::new();
            http1.auto_date_header(false);
            // A connection ends as it likes.
            let _ = http1.serve_connection(TokioIo::new(server), service).await;
        });
        Ok(client)
    }

    /// Carries bytes between two sockets, until one of them is gone or the cable is cut.
    async fn carry(&self, near: DuplexStream, far: DuplexStream) {
        let (from_client, to_client) = tokio::io::split(near);
        let (from_server, to_server) = tokio::io::split(far);
        let cut_after = self.has_fault().then(|| self.faults().chance.below(6_000));
        let up = self.carry_one_way(from_client, to_server, None);
        let down = self.carry_one_way(from_server, to_client, cut_after);
        tokio::select! {
            biased;
            () = up => {}
            () = down => {}
        }
    }

    async fn carry_one_way(
        &self,
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<DuplexStream>,
        cut_after: Option<u64>,
    ) {
        let mut chance = self.chance();
        let most = [16, 512, 8_192][usize::try_from(chance.below(3)).unwrap()];
        let mut buffer = vec![0; most];
        let mut carried = 0;
        loop {
            let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
            carried += count as u64;
            if cut_after.is_some_and(|after| carried > after) {
                simulated::note(|| format!("cut after {carried} bytes"));
                return;
            }
            if chance.one_of(4) {
                // However small the chunks are, some ten thousand bytes arrive in a second.
                let delay = self.faults().delay.min(most as u64 / 4);
                tokio::time::sleep(Duration::from_millis(chance.below(delay + 1))).await;
            }
            if to.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    }

    pub(super) fn may_see(&self, thread: &str, key: &str) -> bool {
        self.faults().seen_by.get(thread).is_some_and(|by| by.contains(&key))
    }

    /// Checks that a client has shown this key for the thread.
    fn expect_shown(&self, thread: &str, key: &str) {
        let is_shown = self.faults().shown.iter().any(|(of, by)| of == thread && by == key);
        if !is_shown {
            simulated::fail(format!(
                "a request for {thread} bears {key:?}, which no client showed"
            ));
        }
    }

    /// The routes behind LangGraph's checks.
    pub(super) fn guarded(&self, routes: Router) -> Router {
        routes.layer(middleware::from_fn_with_state(self.clone(), check_request))
    }
}

/// The key that a request bears.
pub(super) fn key_of(headers: &HeaderMap) -> String {
    let key = headers.get("x-api-key").and_then(|key| key.to_str().ok());
    key.unwrap_or_default().to_owned()
}

fn answer(status: StatusCode, body: &str) -> Response {
    let mut response = Response::new(Body::from(body.to_owned()));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

/// Refuses what the caller may not see, and fails now and then. Checks that the key of a request is
/// one that a client has shown for this thread.
async fn check_request(State(network): State<Network>, request: Request, next: Next) -> Response {
    let key = key_of(request.headers());
    let path = request.uri().path().to_owned();
    simulated::note(|| format!("{} {} as {key:?}", request.method(), request.uri()));
    let mut parts = path.split('/').skip(1);
    let thread = match (parts.next(), parts.next()) {
        (Some("threads"), Some(id)) if id != "search" && id != "count" => Some(id.to_owned()),
        _ => None,
    };
    if let Some(thread) = &thread {
        network.expect_shown(thread, &key);
        if !network.may_see(thread, &key) {
            return answer(StatusCode::NOT_FOUND, r#"{"detail":"Thread not found"}"#);
        }
    }
    if network.has_fault() {
        let chance = network.faults().chance.below(3);
        let status = match chance {
            0 => StatusCode::TOO_MANY_REQUESTS,
            1 => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        simulated::note(|| format!("answered {status}"));
        return answer(status, r#"{"detail":"busy"}"#);
    }
    if path != "/threads/search" {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let search: Value = serde_json::from_slice(&body).unwrap_or_default();
    for id in search["ids"].as_array().into_iter().flatten() {
        network.expect_shown(id.as_str().unwrap_or_default(), &key);
    }
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    // Only the caller's own threads are found.
    let (head, body) = response.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let Ok(Value::Array(mut found)) = serde_json::from_slice(&body) else {
        return Response::from_parts(head, Body::from(body));
    };
    let faults = network.faults();
    found.retain(|thread| {
        let id = thread["thread_id"].as_str().unwrap_or_default();
        faults.seen_by.get(id).is_some_and(|by| by.contains(&&*key))
    });
    drop(faults);
    answer(head.status, &Value::Array(found).to_string())
}

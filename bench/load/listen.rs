//! A bare hyper server and a bare hyper connection, used by the upstream, the pass-through and the
//! load client.

use std::io::{self, Write};
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::client::Fault;

/// Serves on a free port, which is printed on stderr, until stdin is closed.
pub(crate) async fn serve<F, A, B>(answer: F) -> Result<(), Fault>
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Result<Response<B>, Fault>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Fault>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    // The same words as the gateway's.
    writeln!(io::stderr(), "listening on http://{}", listener.local_addr()?)?;
    let mut stdin = tokio::io::stdin();
    let mut byte = [0];
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            // The parent process holds the other end, which closes when that process ends.
            _ = stdin.read(&mut byte) => return Ok(()),
            Some(_) = open.join_next() => {}
            accepted = listener.accept() => {
                let (socket, _) = accepted?;
                socket.set_nodelay(true)?;
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(socket), service_fn(answer.clone()));
                // A client may disconnect at any time.
                open.spawn(async { drop(connection.await) });
            }
        }
    }
}

/// Opens a connection for one request.
#[expect(clippy::disallowed_methods, reason = "the connection ends with its only response")]
pub(crate) async fn connect<B>(address: SocketAddr) -> Result<SendRequest<B>, Fault>
where
    B: Body<Data: Send, Error: Into<Fault>> + Send + 'static,
{
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    // The response's body reports any error of the connection.
    tokio::spawn(async { drop(connection.await) });
    Ok(sender)
}

//! Where connections are served, with real sockets and real threads.

use std::num::NonZero;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A client's socket, and the server's.
async fn connected(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

#[tokio::test]
async fn connections_are_spread_and_each_is_served_by_its_worker() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let workers = Workers::new(NonZero::new(3).unwrap()).unwrap();
    let mut held = Vec::new();
    for _ in 0..6 {
        let (mut client, socket) = connected(&listener).await;
        let worker = workers.least_loaded();
        let (mut socket, seat) = worker.adopt(socket).unwrap();
        let served = worker.runtime().spawn(async move {
            let read = socket.read_u8().await.unwrap();
            socket.write_u8(read).await.unwrap();
            Handle::current().id()
        });
        client.write_u8(7).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), 7);
        assert_eq!(served.await.unwrap(), worker.runtime().id());
        held.push((worker.runtime().id(), seat));
    }
    let of = |id| held.iter().filter(|(other, _)| *other == id).count();
    assert!(held.iter().all(|(id, _)| of(*id) == 2));
    // The next connection goes to the worker that has lost one.
    let (freed, seat) = held.swap_remove(4);
    drop(seat);
    assert_eq!(workers.least_loaded().runtime().id(), freed);
}

#[test]
fn a_number_of_threads_is_above_zero() {
    assert_eq!(counted("3").unwrap().get(), 3);
    for wrong in ["0", "", "-1", "two"] {
        let error = counted(wrong).unwrap_err().to_string();
        assert!(error.starts_with(&format!("TOKIO_WORKER_THREADS is {wrong:?}: set a number")));
    }
}

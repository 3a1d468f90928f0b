//! A transport of the SDK whose messages are also written to a file, for the checks of the suite.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use agent_client_protocol::{
    Agent, Channel, Client, ConnectTo, ConnectionDriver, Error, TransportFrame,
};
use agent_client_protocol_http::HttpClient;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender};

/// The SDK's network client. Each message is a line `client JSON` or `agent JSON` of the file, by
/// its sender; `--` begins a connection.
pub struct Recorded {
    client: HttpClient,
    frames: Arc<Mutex<File>>,
}

impl Recorded {
    pub fn new(client: HttpClient, path: &Path) -> Result<Self, String> {
        let opened = File::options().create(true).append(true).open(path);
        let file = opened.and_then(|mut file| writeln!(file, "--").map(|()| file));
        let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { client, frames: Arc::new(Mutex::new(file)) })
    }
}

impl ConnectTo<Client> for Recorded {
    async fn connect_to(self, client: impl ConnectTo<Agent>) -> Result<(), Error> {
        let (channel, driver) = self.into_channel_and_future();
        let driver = driver.ok_or_else(Error::internal_error)?;
        futures::future::try_join(client.connect_to(channel), driver).await?;
        Ok(())
    }

    fn into_channel_and_future(self) -> (Channel, Option<ConnectionDriver>) {
        let (network, driver) = ConnectTo::<Client>::into_channel_and_future(self.client);
        let (near, far) = Channel::duplex();
        let sent = pump("client", far.rx, network.tx, Arc::clone(&self.frames));
        let received = pump("agent", network.rx, far.tx, self.frames);
        let driven = driver.map(|driver| {
            driver.map_future(|work| async {
                let pumps = futures::future::try_join(sent, received);
                match futures::future::select(Box::pin(work), Box::pin(pumps)).await {
                    // The transport has ended: there is nobody to pump to.
                    futures::future::Either::Left((ended, _)) => ended,
                    futures::future::Either::Right((Ok(_), work)) => work.await,
                    futures::future::Either::Right((Err(error), _)) => Err(error),
                }
            })
        });
        (near, driven)
    }
}

/// Passes the frames of one side on, until that side ends or the other takes none.
async fn pump(
    from: &'static str,
    mut frames: UnboundedReceiver<TransportFrame>,
    to: UnboundedSender<TransportFrame>,
    file: Arc<Mutex<File>>,
) -> Result<(), Error> {
    while let Some(frame) = frames.next().await {
        let line = format!("{from} {}\n", frame.to_json().map_err(Error::into_internal_error)?);
        let mut file = file.lock().map_err(|_| Error::internal_error())?;
        file.write_all(line.as_bytes()).map_err(Error::into_internal_error)?;
        drop(file);
        if to.unbounded_send(frame).is_err() {
            break;
        }
    }
    Ok(())
}

//! A loopback proxy that holds back what a server says.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

/// Forwards to `port`. What the server says on a connection waits until `released` has a permit; none is used up. Also answers
/// how many connections there were.
pub async fn holding_back(port: u16, released: Arc<Semaphore>) -> (SocketAddr, Arc<AtomicUsize>) {
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&accepted);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            let released = Arc::clone(&released);
            tokio::spawn(async move {
                let server = TcpStream::connect(("127.0.0.1", port)).await.expect("the server");
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                let mut buffer = [0; 4_096];
                while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
                    drop(released.acquire().await);
                    if to_client.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, accepted)
}

/// Forwards each new connection to the port that the number names at the time.
pub async fn switching(port: u16) -> (SocketAddr, Arc<AtomicU16>) {
    let target = Arc::new(AtomicU16::new(port));
    let chosen = Arc::clone(&target);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let port = chosen.load(Ordering::SeqCst);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", port)).await.expect("the server");
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, target)
}

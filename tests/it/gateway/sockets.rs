//! WebSockets pass, and hold their place under a concurrency rule for as long as they are open.

use futures_util::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, accept_async, connect_async,
    tungstenite::{Error, Message},
};

use super::{Gateway, policy, soon, until};

const ONE: &str = "[[rules]]\nname = \"one\"\nalgorithm = \"concurrency\"\nlimit = 1\nkey = \"ip\"\n";

/// Says what it hears, in capitals.
async fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut socket = accept_async(stream).await.expect("a WebSocket");
                while let Some(Ok(message)) = socket.next().await {
                    if let Message::Text(text) = message {
                        socket.send(text.to_uppercase().into()).await.expect("sent");
                    }
                }
            });
        }
    });
    format!("http://{address}")
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn connect(gateway: &Gateway) -> Result<Socket, Error> {
    soon("a socket", connect_async(format!("ws://{}/chat", gateway.public))).await.map(|(socket, _)| socket)
}

async fn say(socket: &mut Socket, text: &str) -> String {
    socket.send(text.into()).await.expect("sent");
    soon("an answer", socket.next()).await.expect("open").expect("a message").into_text().expect("text").to_string()
}

#[tokio::test]
async fn a_websocket_passes_and_holds_its_place_until_it_closes() {
    let gateway = Gateway::start(ONE, &["--upstream", &upstream().await]);
    let mut socket = connect(&gateway).await.expect("a WebSocket");
    for text in ["hello", "how are you", "good bye"] {
        assert_eq!(say(&mut socket, text).await, text.to_uppercase());
    }
    match connect(&gateway).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 429),
        other => panic!("one is open: {other:?}"),
    }
    assert_eq!(say(&mut socket, "still there").await, "STILL THERE");
    socket.close(None).await.expect("closed");
    drop(socket);
    let (mut socket, _) = until("the place is free", async || connect(&gateway).await.ok()).await;
    assert_eq!(say(&mut socket, "again").await, "AGAIN");
}

/// Any other protocol too, if it is not HTTP, to the byte; and what the upstream does not agree to stays HTTP.
#[tokio::test]
async fn any_upgrade_passes_and_a_refused_one_is_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let upstream = format!("http://{}", listener.local_addr().expect("its address"));
    let gateway = Gateway::start(&policy("1000/h"), &["--upstream", &upstream]);
    let answers = [
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\nfirst bytes",
        "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno",
    ];
    for answer in answers {
        let serving = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let head = read_until(&mut stream, "\r\n\r\n").await.to_lowercase();
            assert!(head.contains("connection: upgrade") && head.contains("upgrade: shout"), "{head}");
            stream.write_all(answer.as_bytes()).await.expect("written");
            stream
        };
        let mut client = TcpStream::connect(&gateway.public).await.expect("a connection");
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: shout\r\n\r\n";
        client.write_all(request.as_bytes()).await.expect("written");
        let mut stream = soon("a connection", serving).await;
        let head = read_until(&mut client, "\r\n\r\n").await;
        if answer.contains("426") {
            assert!(head.starts_with("HTTP/1.1 426"), "{head}");
            assert!(read_until(&mut client, "no").await == "no");
            continue;
        }
        assert!(head.starts_with("HTTP/1.1 101") && head.to_lowercase().contains("upgrade: shout"), "{head}");
        assert_eq!(read_until(&mut client, "bytes").await, "first bytes");
        client.write_all(b"up\0\xff").await.expect("written");
        let mut bytes = [0; 4];
        soon("bytes", stream.read_exact(&mut bytes)).await.expect("read");
        assert_eq!(&bytes, b"up\0\xff");
        // Either side may end it.
        drop(stream);
        assert_eq!(soon("the end", client.read(&mut bytes)).await.expect("read"), 0);
    }
}

/// HTTP within HTTP would be asked past the rules.
#[tokio::test]
async fn no_upgrade_to_http_passes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let upstream = format!("http://{}", listener.local_addr().expect("its address"));
    let gateway = Gateway::start(&policy("1000/h"), &["--upstream", &upstream]);
    for protocol in ["h2c", "websocket, H2C", "HTTP/2.0", "TLS/1.0"] {
        let serving = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let head = read_until(&mut stream, "\r\n\r\n").await.to_lowercase();
            assert!(!head.contains("upgrade"), "{protocol}: {head}");
            let answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(answer.as_bytes()).await.expect("written");
        };
        let mut client = TcpStream::connect(&gateway.public).await.expect("a connection");
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n");
        client.write_all(request.as_bytes()).await.expect("written");
        soon("a connection", serving).await;
        let head = read_until(&mut client, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{protocol}: {head}");
    }
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let byte = soon("more", stream.read_u8()).await.unwrap_or_else(|_| panic!("it ends after {text:?}"));
        text.push(byte.into());
    }
    text
}

//! A gRPC service without generated code: `/test.Echo/Say` answers what it is told, `/test.Echo/Repeat` says it three times.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response, uri::PathAndQuery};
use sluicegate::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::{
    Status,
    body::Body,
    client::{Grpc, GrpcService},
    codegen::StdError,
    server::NamedService,
    transport::{Channel, Endpoint, Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

#[derive(Clone, PartialEq, prost::Message)]
pub struct Words {
    #[prost(string, tag = "1")]
    pub text: String,
}

type Codec = ProstCodec<Words, Words>;

#[derive(Clone, Debug)]
pub struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl<B> Service<Request<B>> for Echo
where
    B: http_body::Body<Data: Send, Error: Into<StdError> + Send> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(async move {
            let mut server = tonic::server::Grpc::new(Codec::default());
            Ok(match request.uri().path() {
                "/test.Echo/Repeat" => {
                    let repeat = service_fn(async |said: tonic::Request<Words>| {
                        let said = said.into_inner();
                        let three: Vec<Result<Words, Status>> = vec![Ok(said.clone()), Ok(said.clone()), Ok(said)];
                        Ok::<_, Status>(tonic::Response::new(tonic::codegen::tokio_stream::iter(three)))
                    });
                    server.server_streaming(repeat, request).await
                }
                _ => {
                    let say =
                        service_fn(async |said: tonic::Request<Words>| Ok(tonic::Response::new(said.into_inner())));
                    server.unary(say, request).await
                }
            })
        })
    }
}

/// Serves behind `layer` on a free port, as a tonic application would.
pub async fn serve(layer: RateLimitLayer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    let server = Server::builder().layer(layer).add_service(Echo);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

pub async fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).expect("an address").connect().await.expect("a connection")
}

pub async fn say<S>(service: S, text: &str) -> Result<tonic::Response<Words>, Status>
where
    S: GrpcService<Body, Error: std::fmt::Debug, ResponseBody: http_body::Body<Error: Into<StdError>> + Send + 'static>,
{
    let mut client = Grpc::new(service);
    client.ready().await.expect("a ready service");
    let path = PathAndQuery::from_static("/test.Echo/Say");
    client.unary(tonic::Request::new(Words { text: text.into() }), path, Codec::default()).await
}

pub async fn repeat(channel: Channel, text: &str) -> Result<tonic::Response<tonic::Streaming<Words>>, Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.expect("a ready service");
    let path = PathAndQuery::from_static("/test.Echo/Repeat");
    client.server_streaming(tonic::Request::new(Words { text: text.into() }), path, Codec::default()).await
}

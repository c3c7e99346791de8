//! Limits in front of a tonic server, with no word of gRPC in their configuration: calls are known by their content type, and
//! refused with what gRPC clients understand. Serves on a free port, calls itself, prints what the client sees, and ends.
#![allow(clippy::print_stdout)]

use std::{
    convert::Infallible,
    error::Error,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response, StatusCode, uri::PathAndQuery};
use sluicegate::{Limiter, MemoryStore, Quota, RateLimitLayer, Rule};
use tokio::net::TcpListener;
use tonic::{
    Status,
    body::Body,
    server::NamedService,
    transport::{Channel, Endpoint, Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;
use tower::{Service, service_fn};

#[derive(Clone, PartialEq, prost::Message)]
struct Hello {
    #[prost(string, tag = "1")]
    name: String,
}

/// What tonic's code generator would write; by hand, so that this example needs no protoc.
#[derive(Clone)]
struct Greeter;

impl NamedService for Greeter {
    const NAME: &'static str = "example.Greeter";
}

impl Service<Request<Body>> for Greeter {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let greet = service_fn(async |hello: tonic::Request<Hello>| Ok(tonic::Response::new(hello.into_inner())));
        Box::pin(async move { Ok(tonic::server::Grpc::new(ProstCodec::default()).unary(greet, request).await) })
    }
}

async fn call(
    channel: &Channel,
    method: &'static str,
    user: Option<&'static str>,
) -> Result<tonic::Response<Hello>, Status> {
    let mut request = tonic::Request::new(Hello { name: "you".into() });
    if let Some(user) = user {
        request.metadata_mut().insert("x-user", user.parse().map_err(|_| Status::internal("no metadata"))?);
    }
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    client.unary(request, PathAndQuery::from_static(method), ProstCodec::<Hello, Hello>::default()).await
}

fn print(status: &Status) {
    let field = |name| status.metadata().get(name).and_then(|value| value.to_str().ok()).unwrap_or("-").to_owned();
    println!("  {:?}: {}", status.code(), status.message());
    println!("  grpc-retry-pushback-ms {}, retry-after {}", field("grpc-retry-pushback-ms"), field("retry-after"));
    let details = status.get_error_details();
    if let Some(retry) = details.retry_info() {
        println!("  RetryInfo: {:?}", retry.retry_delay);
    }
    for violation in details.quota_failure().into_iter().flat_map(|failure| &failure.violations) {
        println!("  QuotaFailure: {} ({})", violation.quota_id, violation.description);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The path is /package.Service/Method, and metadata are headers.
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(
            Rule::token_bucket("per-user", Quota::per_minute(60).burst(3))
                .key_by(|req| req.headers.get("x-user").cloned().ok_or(StatusCode::UNAUTHORIZED))
                .cost_by(|req| if req.uri.path().ends_with("/GreetEverybody") { 1_000 } else { 1 }),
        )
        .build()?;

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::builder().layer(RateLimitLayer::new(limiter).grpc_details(true)).add_service(Greeter);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;

    for (method, user) in [
        ("/example.Greeter/Greet", Some("alice")),
        ("/example.Greeter/Greet", Some("alice")),
        ("/example.Greeter/Greet", Some("alice")),
        ("/example.Greeter/Greet", Some("alice")),
        ("/example.Greeter/GreetEverybody", Some("bob")),
        ("/example.Greeter/Greet", None),
    ] {
        println!("{method} as {}", user.unwrap_or("nobody"));
        match call(&channel, method, user).await {
            Ok(response) => {
                let left = response.metadata().get("ratelimit").and_then(|value| value.to_str().ok());
                println!("  Ok: hello {}; ratelimit {}", response.get_ref().name, left.unwrap_or("-"));
            }
            Err(status) => print(&status),
        }
    }
    Ok(())
}

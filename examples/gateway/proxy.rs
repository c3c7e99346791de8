use std::{error::Error, io, iter::successors, net::SocketAddr, time::Duration};

use axum::{Json, body::Body, extract::ConnectInfo, response::IntoResponse};
use http::{
    Method, Request, Response, StatusCode, Uri, Version, header,
    uri::{PathAndQuery, Scheme},
};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde_json::json;
use sluicegate::Decision;

use super::{
    args::Upstream,
    facts::Facts,
    fields,
    progress::{Progress, Upload},
    tunnel::Tunnels,
};

/// A host that does not even say no.
const CONNECT: Duration = Duration::from_secs(5);

/// Sends requests on and answers back, both as streams: no body is ever held whole.
#[derive(Clone)]
pub(super) struct Proxy {
    client: Client<HttpConnector, Upload<Incoming>>,
    upstream: Upstream,
    timeout: Duration,
    facts: Facts,
    tunnels: Tunnels,
}

impl Proxy {
    pub(super) fn new(upstream: Upstream, timeout: Duration, facts: Facts, tunnels: Tunnels) -> Proxy {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT.min(timeout)));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .http2_only(upstream.http2)
            .build(connector);
        Proxy { client, upstream, timeout, facts, tunnels }
    }

    pub(super) async fn forward(&self, mut request: Request<Incoming>) -> Response<Body> {
        if request.method() == Method::CONNECT {
            return answer(StatusCode::METHOD_NOT_ALLOWED, "this gateway leads to one service, not anywhere");
        }
        let decision = request.extensions().get::<Decision>().cloned();
        let client = hyper::upgrade::on(&mut request);
        let (request, protocol, progress) = match self.outgoing(request) {
            Ok(outgoing) => outgoing,
            Err(error) => return answer(StatusCode::BAD_REQUEST, &format!("the request cannot be sent on: {error}")),
        };
        let answered = tokio::select! {
            answered = self.client.request(request) => answered,
            () = progress.stalls(self.timeout) => {
                return answer(StatusCode::GATEWAY_TIMEOUT, "the upstream took too long to answer");
            }
        };
        let mut response = match answered {
            Ok(response) => response,
            Err(error) => return failed(&error),
        };
        let agreed = fields::upgrade(response.headers(), response.version());
        fields::strip(response.headers_mut());
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (Some(_), Some(agreed)) = (protocol, agreed) else {
                return answer(StatusCode::BAD_GATEWAY, "the upstream changed the protocol unasked");
            };
            fields::ask_for(response.headers_mut(), agreed);
            let upstream = hyper::upgrade::on(&mut response);
            self.tunnels.open(client, upstream, decision.and_then(|decision| decision.permit()));
        }
        // Each side has a version of its own.
        *response.version_mut() = Version::HTTP_11;
        response.map(Body::new)
    }

    /// The request as the upstream gets it, and the protocol that it asks for.
    fn outgoing(&self, request: Request<Incoming>) -> Result<Outgoing, http::Error> {
        let (mut head, body) = request.into_parts();
        let peer = head.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        let protocol = fields::upgrade(&head.headers, head.version).filter(|_| !self.upstream.http2);
        fields::strip(&mut head.headers);
        fields::forwarded(&mut head, peer, self.facts.now().is_proxy(peer));
        if let Some(protocol) = &protocol {
            fields::ask_for(&mut head.headers, protocol.clone());
        }
        let path = head.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(self.upstream.authority.clone()).path_and_query(path);
        let progress = Progress::new();
        let mut request = Request::new(Upload { body, progress: progress.clone() });
        *request.uri_mut() = uri.build()?;
        *request.method_mut() = head.method;
        *request.headers_mut() = head.headers;
        if self.upstream.http2 {
            *request.version_mut() = Version::HTTP_2;
            request.headers_mut().remove(header::HOST);
        }
        Ok((request, protocol, progress))
    }
}

type Outgoing = (Request<Upload<Incoming>>, Option<http::HeaderValue>, Progress);

/// What kept the upstream from answering is for the log: it names addresses.
fn failed(error: &hyper_util::client::legacy::Error) -> Response<Body> {
    let causes = || successors(Some(error as &dyn Error), |&error| error.source());
    let late =
        causes().filter_map(|error| error.downcast_ref::<io::Error>()).any(|io| io.kind() == io::ErrorKind::TimedOut);
    let text = causes().map(ToString::to_string).collect::<Vec<_>>().join(": ");
    tracing::warn!(error = text, "the upstream did not answer");
    match (late, error.is_connect()) {
        (true, _) => answer(StatusCode::GATEWAY_TIMEOUT, "the upstream took too long to accept a connection"),
        (false, true) => answer(StatusCode::BAD_GATEWAY, "the upstream cannot be reached"),
        (false, false) => answer(StatusCode::BAD_GATEWAY, "the upstream ended without an answer"),
    }
}

fn answer(status: StatusCode, detail: &str) -> Response<Body> {
    let problem = json!({ "title": status.canonical_reason(), "status": status.as_u16(), "detail": detail });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], Json(problem)).into_response()
}

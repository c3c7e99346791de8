use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::{body::Body, extract::ConnectInfo};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use sluicegate::ResponseBody;
use tokio::net::TcpListener;
use tower::{Service, ServiceExt};

/// Whoever sends a head one letter at a time, or nothing at all, does not hold a connection for ever.
const HEAD: Duration = Duration::from_secs(30);
/// Out of file descriptors, say: some will be free soon.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves HTTP/1.1 and h2c until it is told to stop, then answers the connections that are still at work. Nobody else comes in.
pub(super) async fn until<S>(listener: TcpListener, service: S, stop: impl Future<Output = ()>) -> GracefulShutdown
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody<Body>>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    http.http2().timer(TokioTimer::new()).keep_alive_interval(HEAD);
    let running = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => return running,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        // `ip` in a policy is the peer's address, unless it names proxies.
        let service = service.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo::<SocketAddr>(peer));
            request
        });
        let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(service));
        let connection = running.watch(connection.into_owned());
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, %peer, "a connection ended early");
            }
        });
    }
}

//! The HTTP front.
//!
//! Nothing yet but the door: whoever comes is told to come again later.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::settings::{AuthSettings, HttpSettings};
use crate::gateway::Gateway;

/// Serves hosts until `stop`, then lets running requests end.
pub async fn serve(
    _gateway: Arc<Gateway>,
    listener: TcpListener,
    _settings: &HttpSettings,
    _auth: &AuthSettings,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> std::io::Result<()> {
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            () = stop.cancelled() => return Ok(()),
        };
        let stop = stop.clone();
        tasks.spawn(async move {
            let answer = service_fn(|_: Request<Incoming>| async {
                let mut response = Response::new(Full::new(Bytes::new()));
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                Ok::<_, Infallible>(response)
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::select! {
                _ = connection => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

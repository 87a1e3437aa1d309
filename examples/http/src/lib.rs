//! Parts that a server on hyper needs to answer by class: an executor for its connections, and a class for each request.
//!
//! tonic serves over hyper: the same executor serves gRPC.

use std::convert::Infallible;
use std::future::Future;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use punctual::runtime::tokio::Spawner;
use punctual::runtime::{SpawnError, TaskOptions};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// Tasks that read and write connections: short work, without which nobody is answered.
pub const CONNECTION: TaskOptions = TaskOptions::of_class(1).named("connection");

/// The host that runs the tasks of a server.
#[derive(Clone, Debug)]
pub enum Host {
    /// tokio alone: each task is as important as any other.
    Tokio,
    /// Tasks have classes.
    Classes(Spawner),
}

impl Host {
    /// Starts a task that nobody waits for.
    ///
    /// # Errors
    /// See [`SpawnError`]: the task is dropped.
    pub fn start<F>(&self, options: TaskOptions, future: F) -> Result<(), SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self {
            Self::Tokio => drop(tokio::spawn(future)),
            Self::Classes(classes) => drop(classes.spawn(options, future)?),
        }
        Ok(())
    }

    /// Runs a task to its end; `None` if it began and did not come to it.
    ///
    /// # Errors
    /// See [`SpawnError`]: the task is dropped.
    pub async fn run<F>(&self, options: TaskOptions, future: F) -> Result<Option<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Ok(match self {
            Self::Tokio => tokio::spawn(future).await.ok(),
            Self::Classes(classes) => classes.spawn(options, future)?.await.ok(),
        })
    }
}

/// Tasks that hyper spawns, such as the streams of HTTP/2, read and write connections.
impl<F> Executor<F> for Host
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        // hyper cannot be told: the client sees its stream reset, or its connection closed.
        let _dropped = self.start(CONNECTION, future);
    }
}

/// Time in which nobody is accepted where there is no descriptor or no task left: others must end theirs first.
const FULL_WAIT: Duration = Duration::from_millis(10);

/// Time in which a connection may ask for nothing: one that is idle holds a descriptor, of which there are few.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Accepts connections, and serves each in a task of its own, until the host's classes have ended. No fault of one connection, and no
/// shortage until others end, ends the server.
pub async fn serve(listener: TcpListener, host: Host) {
    serve_within(listener, host, IDLE_MAX).await;
}

/// The same, with another time in which a connection may ask for nothing.
pub async fn serve_within(listener: TcpListener, host: Host, idle_max: Duration) {
    loop {
        match listener.accept().await {
            Ok((stream, _from)) => {
                // Without it answers may wait for more to send; one whose client went on is served to its end.
                let _gone = stream.set_nodelay(true);
                if begin(&host, stream, idle_max).await.is_err() {
                    return;
                }
            }
            // Its client was gone before it was accepted.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(_) => tokio::time::sleep(FULL_WAIT).await,
        }
    }
}

/// Starts a connection's task, once one more may live. Meanwhile clients wait in the kernel's queue.
async fn begin(host: &Host, stream: TcpStream, idle_max: Duration) -> Result<(), Closed> {
    loop {
        // A task that is not started drops what it has: this one gets its stream afterwards.
        let (give, given) = oneshot::channel();
        let own = host.clone();
        let task = async move {
            if let Ok(stream) = given.await {
                connection(own, stream, idle_max).await;
            }
        };
        match host.start(CONNECTION, task) {
            Ok(()) => {
                let _ended_meanwhile = give.send(stream);
                return Ok(());
            }
            Err(SpawnError::Full) => tokio::time::sleep(FULL_WAIT).await,
            Err(SpawnError::Closed) => return Err(Closed),
        }
    }
}

/// The host's classes have ended.
struct Closed;

async fn connection(host: Host, stream: TcpStream, idle_max: Duration) {
    let answering = host.clone();
    let (count, counted) = watch::channel(0);
    let count = Arc::new(count);
    let service = service_fn(move |request| {
        let answered = Answered::begin(&count);
        let answer = answer(answering.clone(), request);
        async move {
            let _until_answered = answered;
            answer.await
        }
    });
    let builder = Builder::new(host);
    tokio::select! {
        // A client that goes away ends its connection.
        _gone = builder.serve_connection(TokioIo::new(stream), service) => {}
        () = idle(counted, idle_max) => {}
    }
}

/// Requests of a connection that are being answered, less this one once it is dropped: also where its client has given it up.
struct Answered(Arc<watch::Sender<u32>>);

impl Answered {
    fn begin(count: &Arc<watch::Sender<u32>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(Arc::clone(count))
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Ends once no request was being answered for so long. hyper's own limit is of the head of a request over HTTP/1: it begins behind the
/// first bytes, which tell the version, and HTTP/2 has none.
async fn idle(mut counted: watch::Receiver<u32>, idle_max: Duration) {
    while counted.wait_for(|&count| count == 0).await.is_ok() {
        if tokio::time::timeout(idle_max, counted.changed()).await.is_err() {
            return;
        }
    }
}

/// A request by its path: its importance, and its computing time.
fn request_of(path: &str) -> Option<(TaskOptions, Duration)> {
    match path {
        "/urgent" => Some((TaskOptions::of_class(0).named("urgent"), Duration::from_micros(20))),
        "/report" => Some((TaskOptions::of_class(7).named("report"), Duration::from_millis(3))),
        _ => None,
    }
}

async fn answer(host: Host, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let Some((options, work)) = request_of(request.uri().path()) else { return Ok(unknown()) };
    Ok(match host.run(options, async move { compute(work) }).await {
        Ok(Some(rounds)) => Response::new(Full::from(format!("{rounds}\n"))),
        Err(SpawnError::Full) => refusal(StatusCode::SERVICE_UNAVAILABLE, "busy, try again\n"),
        Ok(None) | Err(SpawnError::Closed) => stopping(),
    })
}

fn unknown() -> Response<Full<Bytes>> {
    refusal(StatusCode::NOT_FOUND, "ask for /urgent or /report\n")
}

fn stopping() -> Response<Full<Bytes>> {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "the server ends\n")
}

fn refusal(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

/// Computes for so long; returns the number of rounds.
fn compute(work: Duration) -> u64 {
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < work {
        rounds = std::hint::black_box(rounds + 1);
    }
    rounds
}

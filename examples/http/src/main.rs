//! A server on hyper that answers urgent requests beside eight clients who want reports. The urgent answers' lateness is measured on
//! tokio alone, and with classes, in turn.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use punctual::runtime::RuntimeOptions;
use punctual::runtime::tokio::Classes;
use punctual_http::{Host, serve};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep_until};

type Anything = Box<dyn Error + Send + Sync>;

/// Clients that want the next report as soon as they have one.
const REPORTERS: usize = 8;

/// Urgent requests are due so often: less often than all reporters are served once, so that they do not queue behind one another.
const PERIOD: Duration = Duration::from_millis(40);

/// Of each turn.
const URGENT: u32 = 100;

const ROUNDS: usize = 5;

fn main() -> Result<(), Anything> {
    let load = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut sums = [Turn::default(), Turn::default()];
    for _round in 0..ROUNDS {
        for (sum, has_classes) in sums.iter_mut().zip([false, true]) {
            sum.add(turn(&load, has_classes)?);
        }
    }
    println!(
        "urgent requests, one due every {PERIOD:?}, beside {REPORTERS} clients who want reports of 3 ms"
    );
    println!("{:<16} {:>10} {:>10} {:>10} {:>10}", "", "p50, ms", "p99, ms", "max, ms", "reports");
    for (name, mut sum) in ["tokio", "with classes"].into_iter().zip(sums) {
        sum.late_ms.sort_by(f64::total_cmp);
        let of = |part: f64| sum.late_ms[((sum.late_ms.len() - 1) as f64 * part) as usize];
        println!("{name:<16} {:>10.2} {:>10.2} {:>10.2} {:>10}", of(0.5), of(0.99), of(1.0), sum.reports);
    }
    Ok(())
}

#[derive(Default)]
struct Turn {
    /// Of each urgent request, from when it was due until it was answered.
    late_ms: Vec<f64>,
    reports: u64,
}

impl Turn {
    fn add(&mut self, more: Self) {
        self.late_ms.extend(more.late_ms);
        self.reports += more.reports;
    }
}

/// A server with one thread, and its clients in another.
fn turn(load: &Runtime, has_classes: bool) -> Result<Turn, Anything> {
    let server = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let options = RuntimeOptions { workers: 1, ..RuntimeOptions::default() };
    let entered = server.enter();
    let classes = has_classes.then(|| Classes::start(&options)).transpose()?;
    drop(entered);
    let host = classes.as_ref().map_or(Host::Tokio, |classes| Host::Classes(classes.spawner().clone()));
    let listener = server.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    server.spawn(serve(listener, host));
    let (end, ends) = tokio::sync::watch::channel(false);
    let reporters: Vec<_> = (0..REPORTERS).map(|_| load.spawn(want_reports(address, ends.clone()))).collect();
    let late_ms = load.block_on(load.spawn(want_answers(address)))??;
    end.send_replace(true);
    let mut reports = 0;
    for reporter in reporters {
        reports += load.block_on(reporter)??;
    }
    drop(classes);
    server.shutdown_background();
    Ok(Turn { late_ms, reports })
}

async fn want_answers(address: SocketAddr) -> Result<Vec<f64>, Anything> {
    let mut connection = connect(address).await?;
    let mut late_ms = Vec::new();
    let mut due = Instant::now();
    for _ in 0..URGENT {
        due += PERIOD;
        sleep_until(due).await;
        ask(&mut connection, "/urgent").await?;
        late_ms.push(due.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(late_ms)
}

async fn want_reports(
    address: SocketAddr,
    ends: tokio::sync::watch::Receiver<bool>,
) -> Result<u64, Anything> {
    let mut connection = connect(address).await?;
    let mut reports = 0;
    while !*ends.borrow() {
        ask(&mut connection, "/report").await?;
        reports += 1;
    }
    Ok(reports)
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Empty<Bytes>>, Anything> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn ask(connection: &mut SendRequest<Empty<Bytes>>, path: &str) -> Result<(), Anything> {
    let request = Request::get(path).header("host", "localhost").body(Empty::new())?;
    let answer = connection.send_request(request).await?;
    match answer.status() {
        StatusCode::OK => answer.into_body().collect().await.map(drop)?,
        status => return Err(format!("{path}: {status}").into()),
    }
    Ok(())
}

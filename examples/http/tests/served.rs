//! hyper and tonic serve in classes, over HTTP/1 and HTTP/2.

use std::io::ErrorKind;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use punctual::runtime::tokio::Classes;
use punctual::runtime::{Metrics, RuntimeOptions, TaskOptions};
use punctual_http::{CONNECTION, Host, serve, serve_within};
use tokio::net::{TcpListener, TcpStream};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// A test that hangs ends.
const PATIENCE: Duration = Duration::from_secs(60);

fn classes() -> Classes {
    Classes::start(&RuntimeOptions { workers: 2, ..RuntimeOptions::default() }).expect("within tokio")
}

/// Polls of a class.
fn polls(metrics: &Metrics, class: u8) -> u64 {
    metrics.classes[usize::from(class)].polls
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its own").to_string();
    (listener, address)
}

/// Goal: requests over both versions are answered, each in its own class, and the connection in that of connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hyper_serves_in_classes() {
    tokio::time::timeout(PATIENCE, async {
        let classes = classes();
        let (listener, address) = listener().await;
        let accepting = tokio::spawn(serve(listener, Host::Classes(classes.spawner().clone())));
        let before = classes.spawner().metrics();

        let stream = TcpStream::connect(&address).await.expect("it listens");
        let (mut first, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1");
        tokio::spawn(connection);
        for (path, status) in [("/urgent", StatusCode::OK), ("/none", StatusCode::NOT_FOUND)] {
            let request =
                Request::get(path).header("host", "here").body(Empty::<Bytes>::new()).expect("text");
            assert_eq!(first.send_request(request).await.expect("an answer").status(), status, "{path}");
        }

        let stream = TcpStream::connect(&address).await.expect("it listens");
        let (mut second, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .expect("HTTP/2");
        tokio::spawn(connection);
        for path in ["/report", "/report"] {
            let request =
                Request::get(format!("http://here{path}")).body(Empty::<Bytes>::new()).expect("text");
            let answer = second.send_request(request).await.expect("an answer");
            let body = answer.into_body().collect().await.expect("all of it").to_bytes();
            assert!(body.ends_with(b"\n"), "{body:?}");
        }

        let since = classes.spawner().metrics().since(&before);
        assert_eq!((polls(&since, 0), polls(&since, 7)), (1, 2), "one for each request");
        assert!(polls(&since, CONNECTION.class) >= 4, "{since:?}");
        accepting.abort();
    })
    .await
    .expect("no hang");
}

/// Goal: a gRPC service runs in classes, as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tonic_serves_in_classes() {
    tokio::time::timeout(PATIENCE, async {
        let classes = classes();
        let host = Host::Classes(classes.spawner().clone());
        let (listener, address) = listener().await;
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_service_status("brakes", tonic_health::ServingStatus::Serving).await;
        let routes = tonic::service::Routes::new(health).prepare();
        let before = classes.spawner().metrics();

        let accepting = host.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _from)) = listener.accept().await {
                let service = TowerToHyperService::new(routes.clone());
                let host = accepting.clone();
                let served = async move {
                    let _gone = Builder::new(host).serve_connection(TokioIo::new(stream), service).await;
                };
                accepting.start(CONNECTION, served).expect("room for a task");
            }
        });

        let channel =
            tonic::transport::Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let mut client = HealthClient::new(channel.connect().await.expect("it listens"));
        for (service, is_known) in [("brakes", true), ("wings", false)] {
            let asked = client.check(HealthCheckRequest { service: service.to_owned() }).await;
            match asked {
                Ok(answer) => assert_eq!((answer.get_ref().status, is_known), (1, true), "SERVING"),
                Err(status) => assert_eq!((status.code(), is_known), (tonic::Code::NotFound, false)),
            }
        }
        let since = classes.spawner().metrics().since(&before);
        assert!(polls(&since, CONNECTION.class) >= 4, "{since:?}");
        accepting.abort();
    })
    .await
    .expect("no hang");
}

/// The answer to an urgent request.
async fn ask(client: &mut SendRequest<Empty<Bytes>>) -> (StatusCode, Bytes) {
    let request = Request::get("/urgent").header("host", "here").body(Empty::<Bytes>::new()).expect("text");
    let answer = client.send_request(request).await.expect("an answer");
    (answer.status(), answer.into_body().collect().await.expect("all of it").to_bytes())
}

async fn client_of(address: &str) -> SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let (client, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP/1");
    tokio::spawn(connection);
    client
}

/// Goal: where as many tasks live as may, a request is told so, and a connection is served once others have ended. Method: room for
/// three tasks, of which one is a connection and two wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_says_so_and_serves_later() {
    tokio::time::timeout(PATIENCE, async {
        let options = RuntimeOptions { workers: 2, tasks_max: 3, ..RuntimeOptions::default() };
        let classes = Classes::start(&options).expect("within tokio");
        let (listener, address) = listener().await;
        tokio::spawn(serve(listener, Host::Classes(classes.spawner().clone())));
        let mut first = client_of(&address).await;
        assert_eq!(ask(&mut first).await.0, StatusCode::OK);

        let (end, ends) = tokio::sync::watch::channel(());
        let mut waiting = 0;
        while waiting < 2 {
            let mut ends = ends.clone();
            let task = async move {
                let _ended = ends.changed().await;
            };
            // There is no room while the first request's task is not gone yet.
            waiting += u32::from(classes.spawn(TaskOptions::of_class(3), task).is_ok());
        }
        let busy = (StatusCode::SERVICE_UNAVAILABLE, Bytes::from_static(b"busy, try again\n"));
        assert_eq!(ask(&mut first).await, busy);

        let mut second = client_of(&address).await;
        let asked = tokio::spawn(async move {
            loop {
                let (status, text) = ask(&mut second).await;
                if status == StatusCode::OK {
                    return;
                }
                // One of the two that wait may still be there.
                assert_eq!((status, text), busy);
            }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        end.send_replace(());
        asked.await.expect("served");
    })
    .await
    .expect("no hang");
}

/// Goal: a server whose classes have ended accepts nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_ends_with_its_classes() {
    tokio::time::timeout(PATIENCE, async {
        let classes = classes();
        let (listener, address) = listener().await;
        let accepting = tokio::spawn(serve(listener, Host::Classes(classes.spawner().clone())));
        let spawner = classes.spawner().clone();
        drop(classes);
        while spawner.spawn(CONNECTION, async {}).is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let _notices = TcpStream::connect(&address).await.expect("it listens");
        accepting.await.expect("no panic");
        assert!(TcpStream::connect(&address).await.is_err());
    })
    .await
    .expect("no hang");
}

/// Goal: a connection that asks for nothing is closed, however far its client came. Method: clients that say these bytes, and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_closed() {
    tokio::time::timeout(PATIENCE, async {
        let classes = classes();
        let (listener, address) = listener().await;
        let host = Host::Classes(classes.spawner().clone());
        let accepting = tokio::spawn(serve_within(listener, host, Duration::from_millis(100)));
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let said: [&[u8]; 5] = [
            b"",
            b"PRI",
            b"GET /urgent HTTP/1.1\r\nHo",
            b"GET /urgent HTTP/1.1\r\nHost: here\r\n\r\n",
            preface,
        ];
        let mut clients = Vec::new();
        for bytes in said {
            let client = TcpStream::connect(&address).await.expect("it listens");
            assert_eq!(client.try_write(bytes).expect("room"), bytes.len());
            clients.push(client);
        }
        for client in clients {
            let mut buffer = [0; 1024];
            loop {
                client.readable().await.expect("of tokio");
                match client.try_read(&mut buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Ok(0) | Err(_) => break,
                    Ok(_answer) => {}
                }
            }
        }
        accepting.abort();
    })
    .await
    .expect("no hang");
}

/// Goal: where no descriptor is left, a server goes on once there is one again. Method: this test again, in a process that may have few.
#[test]
fn a_server_outlives_want_of_descriptors() {
    let own = std::env::current_exe().expect("this program");
    let limited = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(own)
        .args(["want_of_descriptors", "--exact", "--nocapture"])
        .env("PUNCTUAL_TEST_ROLE", "few")
        .output()
        .expect("a shell");
    let (out, err) = (String::from_utf8_lossy(&limited.stdout), String::from_utf8_lossy(&limited.stderr));
    // A filter that names no test passes, too.
    assert!(limited.status.success() && out.contains("1 passed"), "{out}{err}");
}

/// Not a test of its own: the work of the process with few descriptors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn want_of_descriptors() {
    if std::env::var_os("PUNCTUAL_TEST_ROLE").is_none() {
        return;
    }
    tokio::time::timeout(PATIENCE, async {
        let (listener, address) = listener().await;
        let accepting = tokio::spawn(serve(listener, Host::Tokio));
        let mut taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        // One for the client's end, and none for the server's.
        drop(taken.pop());
        let stream = TcpStream::connect(&address).await.expect("it listens");
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(taken);
        let (mut client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1");
        tokio::spawn(connection);
        let request =
            Request::get("/urgent").header("host", "here").body(Empty::<Bytes>::new()).expect("text");
        assert_eq!(client.send_request(request).await.expect("an answer").status(), StatusCode::OK);
        accepting.abort();
    })
    .await
    .expect("no hang");
}

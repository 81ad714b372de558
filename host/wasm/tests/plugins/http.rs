//! HTTP requests of plugins: what is denied, what is refused on the way, what is cut off, and that
//! nothing outlives its call.

use std::collections::BTreeMap;
use std::time::Duration;

use shardmill_core::plugin::{
    AddressPolicy, GuestLimits, HttpHost, HttpLimits, Network, Permissions, ProcessorError,
};
use shardmill_core::ports::RecordProcessor;
use shardmill_wasm::{Endpoint, HttpOptions, Runtime, RuntimeOptions};

use crate::support::{ask, asking, name};
use crate::web::Web;

/// Loopback, where the servers of these tests are.
fn at_home() -> AddressPolicy {
    AddressPolicy {
        allowed: vec![Network::parse("127.0.0.0/8").unwrap()],
    }
}

fn options(limits: HttpLimits) -> HttpOptions {
    HttpOptions {
        limits,
        addresses: at_home(),
        never: Vec::new(),
    }
}

fn runtime(http: HttpOptions) -> Runtime {
    let limits = GuestLimits {
        process_deadline: Duration::from_secs(30),
        ..GuestLimits::default()
    };
    Runtime::new(RuntimeOptions {
        limits,
        http,
        ..RuntimeOptions::default()
    })
    .unwrap()
}

fn hosts(entries: &[String]) -> Permissions {
    let http = entries
        .iter()
        .map(|entry| HttpHost::parse(entry).unwrap())
        .collect();
    Permissions {
        http,
        ..Permissions::default()
    }
}

/// An instance that may send to the server, within these limits.
async fn client(web: &Web, limits: HttpLimits) -> Box<dyn RecordProcessor> {
    let runtime = runtime(options(limits));
    asking(&runtime, hosts(&[format!("http://{}", web.address)]), &[])
        .await
        .unwrap()
}

async fn get(processor: &mut dyn RecordProcessor, url: &str) -> String {
    ask(processor, &format!("http GET {url}")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_host_is_reached_and_told_who_it_is_meant_to_be() {
    let web = Web::start().await;
    let mut client = client(&web, HttpLimits::default()).await;
    assert_eq!(get(&mut *client, &web.url("/hello")).await, "200 5 hello");
    assert_eq!(
        ask(
            &mut *client,
            &format!("http POST {} 100000", web.url("/hello"))
        )
        .await
        .unwrap(),
        "200 5 hello"
    );
    let requests = web.requests();
    assert_eq!(requests.len(), 2);
    assert!(
        requests[0].starts_with("GET /hello HTTP/1.1\r\n")
            && requests[0].contains("x-asking: please")
    );
    for request in &requests {
        let hosts: Vec<_> = request
            .lines()
            .filter(|line| line.to_lowercase().starts_with("host:"))
            .collect();
        assert_eq!(hosts, [format!("host: {}", web.address)]);
    }
    assert!(
        requests[1].contains("content-length: 100000") && requests[1].ends_with(&"x".repeat(1_000))
    );
    web.until_open(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_without_a_grant_links_and_every_request_is_denied() {
    let web = Web::start().await;
    let runtime = runtime(options(HttpLimits::default()));
    let mut client = asking(&runtime, Permissions::default(), &[]).await.unwrap();
    assert_eq!(
        get(&mut *client, &web.url("/hello")).await,
        "error ErrorCode::HttpRequestDenied"
    );
    assert!(web.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_scheme_host_or_port_than_the_granted_one_is_denied() {
    let web = Web::start().await;
    let mut client = client(&web, HttpLimits::default()).await;
    let port = web.address.port();
    for url in [
        format!("https://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://127.0.0.2:{port}/"),
        "http://127.0.0.1/".to_owned(),
        format!("http://127.0.0.1.example.org:{port}/"),
    ] {
        assert_eq!(
            get(&mut *client, &url).await,
            "error ErrorCode::HttpRequestDenied",
            "{url}"
        );
    }
    // The host is what a client reads in it, not what stands in front of an @.
    assert_eq!(
        get(&mut *client, &format!("http://127.0.0.1:{port}@localhost/")).await,
        "error ErrorCode::HttpRequestUriInvalid"
    );
    let answer = ask(&mut *client, &format!("http CONNECT {}", web.url("/hello")))
        .await
        .unwrap();
    assert_eq!(answer, "error ErrorCode::HttpRequestMethodInvalid");
    assert!(web.requests().is_empty());
    // Other ways to write the granted address are that address.
    assert_eq!(
        get(&mut *client, &format!("http://0x7f.1:{port}/hello")).await,
        "200 5 hello"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_granted_name_resolves_to_is_refused_unless_it_is_public_or_allowed() {
    let web = Web::start().await;
    let port = web.address.port();
    let granted = [
        format!("http://localhost:{port}"),
        format!("http://127.0.0.1:{port}"),
        format!("http://*:{port}"),
    ];
    let strict = runtime(HttpOptions::default());
    let mut client = asking(&strict, hosts(&granted), &[]).await.unwrap();
    for host in [
        "localhost",
        "127.0.0.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "10.1.2.3",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "168.63.129.16",
        "100.64.0.1",
        "224.0.0.1",
    ] {
        let answer = get(&mut *client, &format!("http://{host}:{port}/hello")).await;
        assert_eq!(answer, "error ErrorCode::DestinationIpProhibited", "{host}");
    }
    assert!(web.requests().is_empty());

    let addresses = AddressPolicy {
        allowed: vec![
            Network::parse("127.0.0.0/8").unwrap(),
            Network::parse("::1").unwrap(),
        ],
    };
    let lenient = runtime(HttpOptions {
        addresses: addresses.clone(),
        ..HttpOptions::default()
    });
    let mut client = asking(&lenient, hosts(&granted), &[]).await.unwrap();
    assert_eq!(
        get(&mut *client, &format!("http://localhost:{port}/hello")).await,
        "200 5 hello"
    );
    let answer = get(
        &mut *client,
        &format!("http://no-such-name.invalid:{port}/"),
    )
    .await;
    assert!(answer.starts_with("error ErrorCode::DnsError"), "{answer}");

    let never = vec![Endpoint {
        host: "127.0.0.1".to_owned(),
        port,
    }];
    let own = runtime(HttpOptions {
        addresses,
        never,
        ..HttpOptions::default()
    });
    let mut client = asking(&own, hosts(&granted), &[]).await.unwrap();
    for host in ["localhost", "127.0.0.1"] {
        let answer = get(&mut *client, &format!("http://{host}:{port}/hello")).await;
        assert_eq!(
            answer, "error ErrorCode::DestinationIpProhibited",
            "the host's own service, {host}"
        );
    }
    assert_eq!(web.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed_by_the_host_and_checked_anew_when_the_guest_does() {
    let web = Web::start().await;
    let any = [
        format!("http://{}", web.address),
        "http://169.254.169.254".to_owned(),
        "http://10.0.0.1".to_owned(),
    ];
    let runtime = runtime(options(HttpLimits::default()));
    let mut client = asking(&runtime, hosts(&any), &[]).await.unwrap();
    let redirect = |to: &str| web.url(&format!("/redirect?{to}"));
    assert_eq!(
        get(&mut *client, &redirect(&web.url("/hello"))).await,
        "302 0 "
    );
    let mut follow = async |to: &str| {
        ask(&mut *client, &format!("follow {}", redirect(to)))
            .await
            .unwrap()
    };
    assert_eq!(follow(&web.url("/hello")).await, "302 then 200 5 hello");
    let metadata = "http://169.254.169.254/latest/meta-data/iam/security-credentials/";
    assert_eq!(
        follow(metadata).await,
        "302 then error ErrorCode::DestinationIpProhibited"
    );
    assert_eq!(
        follow("http://10.0.0.1/").await,
        "302 then error ErrorCode::DestinationIpProhibited"
    );
    assert_eq!(
        follow("http://127.0.0.1:1/").await,
        "302 then error ErrorCode::HttpRequestDenied"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packed_response_reaches_the_guest_as_it_was_sent() {
    let web = Web::start().await;
    let mut client = client(&web, HttpLimits::default()).await;
    for how in ["gzip", "deflate", "br", "zstd"] {
        let answer = get(&mut *client, &web.url(&format!("/packed?{how}"))).await;
        assert!(answer.starts_with("200 1000 xxxx"), "{how}: {answer}");
    }
    let asks_for_it = |request: &String| request.to_lowercase().contains("accept-encoding");
    assert!(!web.requests().iter().any(asks_for_it));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_larger_than_allowed_is_cut_off() {
    let web = Web::start().await;
    let limits = HttpLimits {
        request_bytes: 10_000,
        response_bytes: 20_000,
        headers: 20,
        header_bytes: 2_000,
        ..HttpLimits::default()
    };
    let mut client = client(&web, limits).await;
    let mut asked = async |words: &str, path: &str, rest: &str| {
        ask(
            &mut *client,
            &format!("http {words} {}{rest}", web.url(path)),
        )
        .await
        .unwrap()
    };
    assert_eq!(asked("POST", "/hello", " 10000").await, "200 5 hello");
    assert_eq!(
        asked("POST", "/hello", " 10001").await,
        "error ErrorCode::HttpRequestBodySize(Some(10000))"
    );
    assert!(
        asked("GET", "/large?20000", "")
            .await
            .starts_with("200 20000 x")
    );
    assert_eq!(
        asked("GET", "/large?20001", "").await,
        "error ErrorCode::HttpResponseBodySize(Some(20000))"
    );
    let endless = asked("GET", "/endless", "").await;
    assert!(
        endless.starts_with("error after ")
            && endless.contains("response body size exceeds limit: 20000"),
        "{endless}"
    );
    assert!(
        asked("GET", "/many-headers?10", "")
            .await
            .starts_with("200")
    );
    let too_large = "error ErrorCode::HttpResponseHeaderSectionSize(Some(2000))";
    assert_eq!(asked("GET", "/many-headers?20", "").await, too_large);
    assert_eq!(asked("GET", "/large-header?2000", "").await, too_large);
    assert!(
        asked("GET", "/many-headers?5000", "")
            .await
            .starts_with("error "),
        "beyond what is read at all"
    );
    assert!(
        asked("GET", "/large-header?2000000", "")
            .await
            .starts_with("error ")
    );
    assert!(asked("GET", "/nonsense", "").await.starts_with("error "));
    assert!(
        asked("GET", "/breaks", "")
            .await
            .starts_with("error after 9 bytes")
    );
    web.until_open(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wait_has_an_end() {
    let web = Web::start().await;
    let short = Duration::from_millis(200);
    let long = Duration::from_mins(5);
    let patient = HttpLimits {
        connect_timeout: long,
        first_byte_timeout: long,
        between_bytes_timeout: long,
        timeout: long,
        ..HttpLimits::default()
    };
    let silent = "error ErrorCode::ConnectionReadTimeout";

    // A server that takes connections and has nothing to say about TLS.
    let limits = HttpLimits {
        connect_timeout: short,
        ..patient
    };
    let mut client_of_tls = asking(
        &runtime(options(limits)),
        hosts(&[format!("https://{}", web.address)]),
        &[],
    )
    .await
    .unwrap();
    let answer = get(&mut *client_of_tls, &format!("https://{}/", web.address)).await;
    assert_eq!(answer, "error ErrorCode::ConnectionTimeout");

    let limits = HttpLimits {
        connect_timeout: short,
        first_byte_timeout: short,
        ..patient
    };
    assert_eq!(
        get(&mut *client(&web, limits).await, &web.url("/silent")).await,
        silent
    );

    let limits = HttpLimits {
        between_bytes_timeout: short,
        ..patient
    };
    let answer = get(&mut *client(&web, limits).await, &web.url("/stalls")).await;
    assert!(answer.starts_with("error after 9 bytes"), "{answer}");
    // A guest may be less patient than the host.
    let answer = ask(
        &mut *client(&web, patient).await,
        &format!("wait 200 {}", web.url("/stalls")),
    )
    .await
    .unwrap();
    assert!(answer.starts_with("error after 9 bytes"), "{answer}");
    // Or have no patience at all.
    let answer = ask(
        &mut *client(&web, patient).await,
        &format!("wait 0 {}", web.url("/silent")),
    )
    .await
    .unwrap();
    assert!(answer.starts_with("error ErrorCode::"), "{answer}");

    // Announcements of a response are none, however many there are.
    let limits = HttpLimits {
        first_byte_timeout: short,
        connect_timeout: short,
        ..patient
    };
    let answer = get(&mut *client(&web, limits).await, &web.url("/hints")).await;
    assert!(answer.starts_with("error ErrorCode::"), "{answer}");

    let limits = HttpLimits {
        timeout: short,
        ..patient
    };
    assert_eq!(
        get(&mut *client(&web, limits).await, &web.url("/silent")).await,
        silent
    );
    let answer = get(&mut *client(&web, limits).await, &web.url("/stalls")).await;
    assert!(answer.starts_with("error after 9 bytes"), "{answer}");
    web.until_open(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_ends_before_the_deadline_of_its_call_so_that_the_guest_sees_the_error() {
    let web = Web::start().await;
    let limits = GuestLimits {
        process_deadline: Duration::from_secs(2),
        ..GuestLimits::default()
    };
    let runtime = Runtime::new(RuntimeOptions {
        limits,
        http: options(HttpLimits::default()),
        ..RuntimeOptions::default()
    })
    .unwrap();
    let mut client = asking(&runtime, hosts(&[format!("http://{}", web.address)]), &[])
        .await
        .unwrap();
    assert_eq!(
        get(&mut *client, &web.url("/silent")).await,
        "error ErrorCode::ConnectionReadTimeout"
    );
    assert_eq!(
        get(&mut *client, &web.url("/hello")).await,
        "200 5 hello",
        "the instance is as good as before"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ends_takes_its_requests_with_it() {
    let web = Web::start().await;
    let mut client = client(&web, HttpLimits::default()).await;
    let left = format!("leave {}", web.url("/silent"));
    for _ in 0..20 {
        // More than may be in flight in one call, which no earlier call has a part in.
        assert_eq!(ask(&mut *client, &left).await.unwrap(), "left");
    }
    web.until_open(0).await;
    // Also if the response has begun, and the guest keeps it without ever reading it.
    let lingering = format!("linger {}", web.url("/stalls"));
    for _ in 0..20 {
        assert_eq!(ask(&mut *client, &lingering).await.unwrap(), "200 left");
    }
    web.until_open(0).await;
    // A call that nobody waits for any more is not waited for by its requests either.
    let question = format!("http GET {}", web.url("/silent"));
    tokio::select! {
        answer = ask(&mut *client, &question) => panic!("{answer:?}"),
        () = web.until_open(1) => {}
    }
    drop(client);
    web.until_open(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_at_once_and_in_a_call() {
    let web = Web::start().await;
    let mut client = client(
        &web,
        HttpLimits {
            in_flight: 3,
            per_call: 10,
            ..HttpLimits::default()
        },
    )
    .await;
    let burst = |count: usize| format!("burst {count} {}", web.url("/hello"));
    assert_eq!(
        ask(&mut *client, &burst(3)).await.unwrap(),
        "3 answered, 0 refused: None"
    );
    let answer = ask(&mut *client, &burst(5)).await.unwrap();
    assert!(
        answer.starts_with("3 answered, 2 refused") && answer.contains("ConnectionLimitReached"),
        "{answer}"
    );
    let batch: Vec<String> = (0..12)
        .map(|_| format!("http GET {}", web.url("/hello")))
        .collect();
    let answers = crate::support::ask_all(&mut *client, &batch).await.unwrap();
    let mut counted = BTreeMap::new();
    for answer in answers {
        *counted.entry(answer).or_insert(0) += 1;
    }
    assert_eq!(counted["200 5 hello"], 10);
    assert_eq!(counted["error ErrorCode::ConnectionLimitReached"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_instances_of_a_plugin_have_half_of_the_requests_at_once_that_the_host_allows() {
    let web = Web::start().await;
    let limits = HttpLimits {
        in_flight_total: 2,
        ..HttpLimits::default()
    };
    let granted = hosts(&[format!("http://{}", web.address)]);
    let patient = runtime(options(HttpLimits {
        connect_timeout: Duration::from_mins(1),
        ..limits
    }));
    let mut other = asking(&patient, granted.clone(), &[]).await.unwrap();
    assert_eq!(
        ask(&mut *other, &format!("burst 3 {}", web.url("/hello")))
            .await
            .unwrap(),
        "3 answered, 0 refused: None"
    );
    web.until_open(0).await;
    let runtime = runtime(options(HttpLimits {
        connect_timeout: Duration::from_millis(500),
        ..limits
    }));
    let mut busy = asking(&runtime, granted.clone(), &[]).await.unwrap();
    let mut other = asking(&runtime, granted, &[]).await.unwrap();
    let question = format!("http GET {}", web.url("/silent"));
    tokio::select! {
        answer = ask(&mut *busy, &question) => panic!("{answer:?}"),
        answer = async { web.until_open(1).await; get(&mut *other, &web.url("/hello")).await } => {
            assert_eq!(answer, "error ErrorCode::ConnectionLimitReached");
        }
    }
    drop(busy);
    web.until_open(0).await;
    assert_eq!(get(&mut *other, &web.url("/hello")).await, "200 5 hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_writes_no_header_that_says_where_a_request_ends_or_whom_it_is_for() {
    let web = Web::start().await;
    let mut client = client(&web, HttpLimits::default()).await;
    let mut answer =
        async |words: &str| ask(&mut *client, &format!("header {words}")).await.unwrap();
    assert_eq!(answer("x-asking please").await, "taken");
    for name in [
        "transfer-encoding",
        "Transfer-Encoding",
        "host",
        "connection",
        "upgrade",
        "proxy-authorization",
        "proxy-connection",
        "keep-alive",
    ] {
        let told = answer(&format!("{name} x")).await;
        assert!(told.contains("Forbidden"), "{name}: {told}");
    }
    for split in [
        "x-asking a|x-more:b",
        "x-asking a||GET",
        "x-a:b|x-more c",
        "x|y z",
    ] {
        let told = answer(split).await;
        assert!(told.contains("InvalidSyntax"), "{split}: {told}");
    }
    let mut path = async |path: &str| ask(&mut *client, &format!("path {path}")).await.unwrap();
    assert_eq!(path("/hello?a=b").await, "taken");
    assert_eq!(path("/hello|x-more:b").await, "refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_and_bodies_that_are_never_sent_are_bounded() {
    for granted in [Vec::new(), vec!["http://127.0.0.1:1".to_owned()]] {
        let runtime = runtime(options(HttpLimits::default()));
        for what in ["fields", "bodies"] {
            let mut hostile = asking(&runtime, hosts(&granted), &[]).await.unwrap();
            // Both run into a limit of the host, which costs the instance.
            let error = ask(&mut *hostile, what).await.unwrap_err();
            assert!(
                matches!(
                    error,
                    ProcessorError::Trapped { .. } | ProcessorError::LimitExceeded { .. }
                ),
                "{what}: {error}"
            );
        }
        let plugin = runtime
            .load(name("asking"), crate::support::guest("asking").into())
            .await
            .unwrap();
        assert!(crate::support::instance(&plugin, &[]).await.is_ok());
    }
}
